#include "server/daemon/paths.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "server/daemon/unix_socket.h"
#include "server/protocol/random_id.h"

using namespace amk;
using namespace amk::daemon;
namespace fs = std::filesystem;

namespace {

struct TempFolder {
  fs::path path = fs::temp_directory_path() / ("amk-test-" + random_id());
  TempFolder() { fs::create_directories(path); }
  ~TempFolder() { fs::remove_all(path); }
};

}  // namespace

TEST_CASE("short workspaces keep their socket inside, long ones in a private folder; two spellings are one workspace") {
  TempFolder t;
  const Paths p = *prepare_paths(t.path / "w");
  CHECK(p.socket == fs::canonical(t.path / "w") / "daemon.sock");
  struct stat info {};
  REQUIRE(::stat(p.workspace.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  fs::create_directory_symlink(t.path / "w", t.path / "link");
  CHECK(prepare_paths(t.path / "link")->socket == p.socket);

  ::setenv("XDG_RUNTIME_DIR", t.path.c_str(), 1);
  const fs::path deep = t.path / std::string(100, 'd') / "w";
  const Paths q = *prepare_paths(deep);
  CHECK(q.socket.string().size() <= kMaxSocketPath);
  CHECK(q.socket.parent_path() == t.path / "amk");
  CHECK(prepare_paths(deep)->socket == q.socket);
  CHECK(prepare_paths(t.path / std::string(100, 'e') / "w")->socket != q.socket);
  REQUIRE(::stat((t.path / "amk").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);

  // A folder that others may enter is no place for a socket.
  ::chmod((t.path / "amk").c_str(), 0755);
  CHECK(prepare_paths(deep).error().kind == ErrorKind::Unavailable);
  fs::remove(t.path / "amk");
  fs::create_directory_symlink(t.path / "w", t.path / "amk");
  CHECK(prepare_paths(deep).error().kind == ErrorKind::Unavailable);
  ::unsetenv("XDG_RUNTIME_DIR");
}

TEST_CASE("a workspace that cannot be made is an error that names it") {
  TempFolder t;
  {
    std::FILE* f = std::fopen((t.path / "file").c_str(), "w");
    std::fclose(f);
  }
  CHECK(prepare_paths(t.path / "file" / "w").error().message.find("file/w") != std::string::npos);
}

TEST_CASE("sockets: 0600, a stale file is replaced, nobody listening is Unavailable, a path too long is refused") {
  TempFolder t;
  const fs::path path = t.path / "s";
  CHECK(connect_unix(path).error().kind == ErrorKind::Unavailable);
  const int first = *listen_unix(path);
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  ::close(first);
  CHECK(connect_unix(path).error().kind == ErrorKind::Unavailable);
  const int second = *listen_unix(path);
  const int client = *connect_unix(path);
  CHECK(peer_is_us(client));
  ::close(client);
  ::close(second);
  CHECK(listen_unix(t.path / std::string(120, 'x')).error().kind == ErrorKind::InvalidArgument);
}
