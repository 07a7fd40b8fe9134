#include "server/daemon/paths.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "core/base/hash.h"
#include "server/daemon/unix_socket.h"

namespace amk::daemon {
namespace {

namespace fs = std::filesystem;

// A folder that only we can enter. Others may have put something there first: /tmp is everybody's.
Status private_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return os_error("mkdir", path.string());
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return os_error("lstat", path.string());
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0)
    return fail(ErrorKind::Unavailable, path.string() + " must be a folder of our own with mode 0700: sockets are kept there",
                {{"path", path.string()}});
  return {};
}

Result<fs::path> short_socket_path(const fs::path& workspace) {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  fs::path folder = fs::path("/tmp") / ("amk-" + std::to_string(::geteuid()));
  const std::string name = hash128_hex(workspace.string()) + ".sock";
  if (runtime && *runtime == '/' && std::string(runtime).size() + name.size() + 8 <= kMaxSocketPath) {
    struct stat info {};
    if (::stat(runtime, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid()) folder = fs::path(runtime) / "amk";
  }
  AMK_CHECK(private_folder(folder));
  return folder / name;
}

}  // namespace

Result<Paths> prepare_paths(const fs::path& workspace) {
  std::error_code problem;
  const bool existed = fs::exists(workspace, problem);
  fs::create_directories(workspace, problem);
  if (problem) return fail(ErrorKind::Io, "cannot create the workspace " + workspace.string() + ": " + problem.message(), {{"field", "workspace"}});
  Paths p;
  p.workspace = fs::canonical(workspace, problem);
  if (problem) return fail(ErrorKind::Io, "cannot resolve the workspace " + workspace.string() + ": " + problem.message(), {{"field", "workspace"}});
  if (!existed) ::chmod(p.workspace.c_str(), 0700);
  p.lock = p.workspace / "daemon.lock";
  p.logs = p.workspace / "logs";
  fs::create_directories(p.logs, problem);
  if (problem) return fail(ErrorKind::Io, "cannot create " + p.logs.string() + ": " + problem.message());
  p.socket = p.workspace / "daemon.sock";
  if (p.socket.string().size() > kMaxSocketPath) {
    AMK_TRY(path, short_socket_path(p.workspace));
    p.socket = path;
  }
  return p;
}

}  // namespace amk::daemon
