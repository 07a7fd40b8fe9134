#include "server/daemon/paths.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "core/base/files.h"
#include "core/base/hash.h"
#include "server/daemon/unix_socket.h"

namespace amk::daemon {
namespace {

namespace fs = std::filesystem;

bool is_private(const fs::path& folder) {
  struct stat info {};
  return ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 077) == 0;
}

// A folder that only we can enter. Others may have put something there first: /tmp is everybody's.
Status private_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return os_error("mkdir", path.string());
  if (!is_private(path))
    return fail(ErrorKind::Unavailable, path.string() + " must be a folder of our own with mode 0700: sockets are kept there",
                {{"path", path.string()}});
  return {};
}

Result<fs::path> short_socket_path(const fs::path& workspace) {
  const std::string name = hash128_hex(workspace.string()) + ".sock";
  // Where the last daemon listened stands in its lock: who calls from another environment (a service, an agent's sandbox) finds it all the same.
  if (const auto told = read_range(workspace / "daemon.lock", 0, kMaxSocketPath)) {
    const fs::path socket = told->substr(0, told->find('\n'));
    if (socket.is_absolute() && socket.filename() == name && is_private(socket.parent_path())) return socket;
  }
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  fs::path folder = fs::path("/tmp") / ("amk-" + std::to_string(::geteuid()));
  if (runtime && *runtime == '/' && std::string(runtime).size() + name.size() + 8 <= kMaxSocketPath) {
    struct stat info {};
    if (::stat(runtime, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid()) folder = fs::path(runtime) / "amk";
  }
  AMK_CHECK(private_folder(folder));
  return folder / name;
}

bool is_folder_of_ours(std::string_view name) { return name == "logs" || name == "reports" || name == "traces" || name == "backups"; }

// A workspace may come with a checkout of somebody's: a link of that name would lead what is written to a file of the user's elsewhere (daemon.out is
// cut, the reserve is overwritten), and opening a FIFO would wait for ever. What else the user keeps there is his.
Status no_strangers(const fs::path& folder, bool (*ours)(std::string_view)) {
  std::error_code problem;
  for (fs::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem)) {
    const std::string name = at->path().filename().string();
    if (!ours(name)) continue;
    struct stat info {};
    if (::lstat(at->path().c_str(), &info) != 0) continue;
    const bool is_folder = is_folder_of_ours(name);
    // Whatever has the socket's name is taken away before another is made, and never opened.
    if (name == "daemon.sock" || (is_folder ? S_ISDIR(info.st_mode) : S_ISREG(info.st_mode))) continue;
    return fail(ErrorKind::InvalidArgument,
                at->path().string() + " is " +
                    (S_ISLNK(info.st_mode) ? "a symbolic link" : "no " + std::string(is_folder ? "folder" : "regular file")) + "; accepted: a " +
                    (is_folder ? "folder" : "regular file") + " of the workspace's own: move it away",
                {{"field", "workspace"}, {"path", at->path().string()}});
  }
  return {};
}

bool names_of_workspace(std::string_view name) {
  for (const std::string_view prefix : {"store.", "results.", "corpus.", "reserve.", "daemon.", "workspace.", "http."})
    if (name.starts_with(prefix)) return true;
  return is_folder_of_ours(name);
}

// SQLite's own limit (MAX_PATHNAME, 512), less the longest name that lies there.
Status short_enough(const fs::path& workspace) {
  constexpr std::size_t kLongest = 450;
  const std::size_t bytes = workspace.string().size();
  if (bytes <= kLongest) return {};
  const std::string accepted = "a path of at most " + std::to_string(kLongest) + " bytes";
  return fail(ErrorKind::InvalidArgument, "the workspace's path has " + std::to_string(bytes) + " bytes; accepted: " + accepted,
              {{"field", "workspace"}, {"value", bytes}, {"accepted", accepted}});
}

}  // namespace

Result<Paths> prepare_paths(const fs::path& workspace) {
  std::error_code problem;
  AMK_CHECK(short_enough(fs::absolute(workspace, problem)));  // before anything is made
  const bool existed = fs::exists(workspace, problem);
  fs::create_directories(workspace, problem);
  if (problem) return fail(ErrorKind::Io, "cannot create the workspace " + workspace.string() + ": " + problem.message(), {{"field", "workspace"}});
  Paths p;
  p.workspace = fs::canonical(workspace, problem);
  if (problem) return fail(ErrorKind::Io, "cannot resolve the workspace " + workspace.string() + ": " + problem.message(), {{"field", "workspace"}});
  AMK_CHECK(short_enough(p.workspace));
  if (!existed) ::chmod(p.workspace.c_str(), 0700);
  AMK_CHECK(no_strangers(p.workspace, names_of_workspace));
  p.lock = p.workspace / "daemon.lock";
  p.logs = p.workspace / "logs";
  fs::create_directories(p.logs, problem);
  if (problem) return fail(ErrorKind::Io, "cannot create " + p.logs.string() + ": " + problem.message());
  AMK_CHECK(no_strangers(p.logs, [](std::string_view name) { return name.starts_with("daemon."); }));
  AMK_CHECK(no_strangers(p.workspace / "reports", [](std::string_view name) {  // c7.md, c7-knobs.svg: a campaign's
    return name.size() > 1 && name[0] == 'c' && name[1] >= '0' && name[1] <= '9';
  }));
  p.socket = p.workspace / "daemon.sock";
  if (p.socket.string().size() > kMaxSocketPath) {
    AMK_TRY(path, short_socket_path(p.workspace));
    p.socket = path;
  }
  return p;
}

}  // namespace amk::daemon
