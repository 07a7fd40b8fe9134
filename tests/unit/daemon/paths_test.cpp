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

TEST_CASE("a path that SQLite could not open is refused before anything is made there") {
  TempFolder t;
  const fs::path deep = t.path / std::string(200, 'd') / std::string(200, 'e'), too_deep = deep / std::string(60, 'f');
  CHECK(prepare_paths(deep));
  const auto refused = prepare_paths(too_deep);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().data.at("field") == "workspace");
  CHECK_FALSE(fs::exists(too_deep));
  fs::create_directories(too_deep);
  fs::create_directory_symlink(too_deep, t.path / "link");
  CHECK_FALSE(prepare_paths(t.path / "link"));
}

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

  // A daemon says where it listens: who has another environment finds it, unless others may enter there.
  const auto told = [&](const fs::path& socket) {
    std::FILE* f = std::fopen((deep / "daemon.lock").c_str(), "w");
    std::fputs((socket.string() + "\n").c_str(), f);
    std::fclose(f);
    return prepare_paths(deep)->socket;
  };
  fs::create_directories(t.path / "else");
  const fs::path elsewhere = t.path / "else" / q.socket.filename();
  CHECK(told(elsewhere) == q.socket);
  ::chmod((t.path / "else").c_str(), 0700);
  CHECK(told(elsewhere) == elsewhere);
  CHECK(told(t.path / "else" / "other.sock") == q.socket);
  CHECK(told("else/" + q.socket.filename().string()) == q.socket);
  fs::create_directory_symlink(t.path / "else", t.path / "link2");
  CHECK(told(t.path / "link2" / q.socket.filename()) == q.socket);

  // A folder that others may enter is no place for a socket.
  ::chmod((t.path / "amk").c_str(), 0755);
  CHECK(prepare_paths(deep).error().kind == ErrorKind::Unavailable);
  fs::remove(t.path / "amk");
  fs::create_directory_symlink(t.path / "w", t.path / "amk");
  CHECK(prepare_paths(deep).error().kind == ErrorKind::Unavailable);
  ::unsetenv("XDG_RUNTIME_DIR");
}

TEST_CASE("a link, a FIFO or a folder under a name of ours is refused by name; what else is kept there is not looked at") {
  TempFolder t;
  const fs::path w = t.path / "w", theirs = t.path / "theirs";
  fs::create_directories(theirs);
  REQUIRE(prepare_paths(w));
  fs::create_symlink(theirs, w / "my-models");
  fs::create_directories(w / "reports" / "old");
  fs::create_symlink(theirs, w / "reports" / "compare.md");
  REQUIRE(prepare_paths(w));
  for (const char* name : {"store.sqlite", "store.sqlite-wal", "store.sqlite-shm", "store.sqlite-journal", "results.tsv", "results.tsv.partial",
                           "results.state", "results.quarantine", "corpus.jsonl", "reserve.bin", "daemon.lock", "workspace.lock", "http.token",
                           "logs/daemon.log", "logs/daemon.1.log", "logs/daemon.out", "reports/c1.md", "reports/c12-knobs.svg"}) {
    const fs::path at = w / name;
    for (const int kind : {0, 1, 2, 3}) {
      CAPTURE(name);
      CAPTURE(kind);
      if (kind == 0) fs::create_symlink(theirs / "file", at);
      if (kind == 1) fs::create_directory_symlink(theirs, at);
      if (kind == 2) REQUIRE(::mkfifo(at.c_str(), 0600) == 0);
      if (kind == 3) fs::create_directories(at);
      const auto refused = prepare_paths(w);
      REQUIRE_FALSE(refused);
      CHECK(refused.error().kind == ErrorKind::InvalidArgument);
      CHECK(refused.error().data["path"] == (fs::canonical(w) / name).string());
      fs::remove(at);
      CHECK(prepare_paths(w));
    }
  }
  for (const char* name : {"logs", "reports", "traces", "backups"}) {
    CAPTURE(name);
    fs::remove_all(w / name);
    fs::create_directory_symlink(theirs, w / name);
    CHECK_FALSE(prepare_paths(w));
    fs::remove(w / name);
    std::fclose(std::fopen((w / name).c_str(), "w"));
    CHECK_FALSE(prepare_paths(w));
    fs::remove(w / name);
  }
  REQUIRE(prepare_paths(w));
  CHECK(fs::is_empty(theirs));
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
