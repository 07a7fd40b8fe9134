// Files that appear whole or not at all, with several writers, killed writers, and names that lead elsewhere.
#include "core/base/files.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/support/temp_folder.h"

using namespace amk;
using amk::test::TempFolder;

namespace {

std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}
mode_t mode_of(const std::filesystem::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

}  // namespace

TEST_CASE("a file is replaced whole, or stays as it was and nothing is left beside it") {
  TempFolder t;
  const auto path = t.path / "file";
  REQUIRE(replace_file(path, "first"));
  CHECK(slurp(path) == "first");
  {
    auto file = AtomicFile::create(path);
    REQUIRE(file);
    REQUIRE(file->write(std::string(3 << 20, 'x')));  // more than is buffered
    CHECK(file->size() == 3 << 20);
    REQUIRE(file->complete());
    CHECK(slurp(path) == "first");
  }
  CHECK(slurp(path) == "first");
  CHECK_FALSE(std::filesystem::exists(path.string() + ".partial"));
  REQUIRE(replace_file(path, "second", {.durable = false}));
  CHECK(slurp(path) == "second");
  CHECK_FALSE(std::filesystem::exists(path.string() + ".partial"));

  const auto nowhere = replace_file(t.path / "no" / "file", "x");
  CHECK(nowhere.error().kind == ErrorKind::Io);
  CHECK(nowhere.error().message.find("no/file.partial") != std::string::npos);
}

TEST_CASE("a FIFO, a device, a folder or a link in a file's place is refused at once, and its target stays as it was") {
  TempFolder t;
  std::ofstream(t.path / "theirs") << "precious";
  const auto path = t.path / "file", partial = t.path / "file.partial";
  const auto all_refuse = [&](const std::filesystem::path& at, std::string_view what) {
    CAPTURE(what);
    const auto refused = [&](const Error& e) { return e.kind == ErrorKind::InvalidArgument && e.message.find(what) != std::string::npos; };
    if (at == path) {
      CHECK(refused(append_bytes(path, "x").error()));
      CHECK(refused(read_range(path, 0, 10).error()));
    } else {
      CHECK(refused(replace_file(path, "x").error()));
    }
    std::filesystem::remove(at);
  };
  for (const auto& at : {path, partial}) {
    REQUIRE(::mkfifo(at.c_str(), 0600) == 0);
    all_refuse(at, "FIFO");
    std::filesystem::create_symlink(t.path / "theirs", at);
    all_refuse(at, "symbolic link");
    std::filesystem::create_symlink(t.path / "nothing", at);
    all_refuse(at, "symbolic link");
    std::filesystem::create_directory(at);
    all_refuse(at, "folder");
  }
  CHECK(slurp(t.path / "theirs") == "precious");
  CHECK_FALSE(std::filesystem::exists(t.path / "nothing"));
  CHECK(read_range(path, 0, 10).error().kind == ErrorKind::Io);  // there is none
  REQUIRE(append_bytes(path, "0123456789"));
  REQUIRE(append_bytes(path, "ab"));
  CHECK(read_range(path, 8, 100) == "89ab");
  CHECK(read_range(path, 50, 100) == "");
  CHECK(read_range(path, 5, 2) == "");
}

TEST_CASE("permissions: as asked for, or as they were") {
  TempFolder t;
  const auto path = t.path / "file";
  const mode_t before = ::umask(022);
  REQUIRE(replace_file(path, "x"));
  CHECK(mode_of(path) == 0644);
  REQUIRE(replace_file(t.path / "own", "x", {.mode = 0600}));
  CHECK(mode_of(t.path / "own") == 0600);
  ::chmod(path.c_str(), 0751);
  REQUIRE(replace_file(path, "y", {.keep_mode = true}));
  CHECK(mode_of(path) == 0751);
  REQUIRE(replace_file(t.path / "new", "y", {.keep_mode = true}));
  CHECK(mode_of(t.path / "new") == 0644);
  ::umask(before);
}

TEST_CASE("a killed writer's temporary file is taken over; a link in its place is not followed") {
  TempFolder t;
  const auto path = t.path / "file", partial = t.path / "file.partial";
  const pid_t child = ::fork();
  if (child == 0) {
    auto file = AtomicFile::create(path);
    (void)file->write(std::string(2 << 20, 'z'));
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  CHECK(std::filesystem::file_size(partial) > 0);
  CHECK_FALSE(std::filesystem::exists(path));
  REQUIRE(replace_file(path, "short"));
  CHECK(slurp(path) == "short");
  CHECK_FALSE(std::filesystem::exists(partial));

  std::ofstream(t.path / "theirs") << "theirs";
  std::filesystem::create_symlink(t.path / "theirs", partial);
  CHECK_FALSE(replace_file(path, "longer"));
  CHECK(slurp(t.path / "theirs") == "theirs");
  CHECK(slurp(path) == "short");
}

TEST_CASE("writers of one path, threads and processes, wait for each other: every look sees one of their texts") {
  TempFolder t;
  const auto path = t.path / "file";
  // Each text is one letter, of a length that belongs to the letter: a mixture or a torn one shows.
  const auto text = [](int n) { return std::string(static_cast<std::size_t>(1000 * (n + 1)), static_cast<char>('a' + n)); };
  REQUIRE(replace_file(path, text(0)));
  std::vector<pid_t> children;
  for (int p = 0; p < 3; ++p) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::atomic<int> failed{0};
      std::vector<std::thread> threads;
      for (int k = 0; k < 3; ++k)
        threads.emplace_back([&, k] {
          for (int i = 0; i < 60; ++i)
            if (!replace_file(path, text((p * 3 + k + i) % 9), {.durable = false})) ++failed;
        });
      for (auto& thread : threads) thread.join();
      ::_exit(failed == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  int strange = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string seen = slurp(path);
    if (seen.empty() || seen != text(seen[0] - 'a')) ++strange;
  }
  CHECK(strange == 0);
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  CHECK_FALSE(std::filesystem::exists(path.string() + ".partial"));
}

TEST_CASE("own_folder: ours, or another that is; never one of somebody else's, nor one that others may write") {
  TempFolder t;
  const auto wanted = t.path / "cache";
  CHECK(own_folder(wanted) == wanted);
  CHECK(own_folder(wanted) == wanted);
  CHECK(mode_of(wanted) == 0700);
  const auto another = [&] {
    const auto other = own_folder(wanted);
    CHECK(other != wanted);
    CHECK(std::filesystem::is_directory(other));
    CHECK(mode_of(other) == 0700);
    std::filesystem::remove(other);
  };
  ::chmod(wanted.c_str(), 0777);
  another();
  ::chmod(wanted.c_str(), 0700);
  if (::geteuid() == 0) {  // only root can make one of somebody else's
    REQUIRE(::chown(wanted.c_str(), 65534, 65534) == 0);
    another();
  }
  std::filesystem::remove(wanted);
  std::filesystem::create_directory_symlink(t.path, wanted);
  another();
  CHECK(own_folder(t.path / "no" / "such") == t.path / "no" / "such" / "taken");
}
