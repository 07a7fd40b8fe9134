#include <doctest/doctest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include "core/base/memory_map.h"
#include "tests/support/temp_folder.h"

using namespace amk;

TEST_CASE("a mapped file shows its bytes and identity; an empty one maps to nothing") {
  const test::TempFolder folder;
  std::ofstream(folder.path / "f") << "hello";
  std::ofstream(folder.path / "empty");
  FileIdentity id;
  const auto map = MemoryMap::open_file(folder.path / "f", &id);
  REQUIRE(map);
  CHECK(std::string(reinterpret_cast<const char*>(map->data()), map->size()) == "hello");
  CHECK(id.size == 5);
  CHECK(id.inode != 0);
  const auto empty = MemoryMap::open_file(folder.path / "empty");
  REQUIRE(empty);
  CHECK(empty->size() == 0);
  CHECK(MemoryMap::open_file(folder.path / "absent").error().kind == ErrorKind::NotFound);
  CHECK(MemoryMap::open_file(folder.path / "f" / "below").error().kind == ErrorKind::NotFound);
  CHECK(MemoryMap::open_file("/dev/null").error().kind == ErrorKind::InvalidArgument);
}

TEST_CASE("a mapped file that is cut under its readers shows zeros, is counted, and ends nobody") {
  const test::TempFolder folder;
  const auto path = folder.path / "f";
  constexpr std::size_t kSize = 64 * 4096;
  std::ofstream(path) << std::string(kSize, 'x');
  const auto cut = MemoryMap::open_file(path), other = MemoryMap::open_file(path);
  REQUIRE(cut);
  REQUIRE(other);
  const auto at = [](const MemoryMap& map, std::size_t i) { return std::to_integer<int>(map.data()[i]); };
  CHECK(at(*cut, kSize - 1) == 'x');
  const auto identity = identity_of(path);
  const std::uint64_t before = mapped_read_failures();
  CHECK(mapped_reads_succeeded_since(before));
  std::filesystem::resize_file(path, 3 * 4096 + 5);
  CHECK(at(*cut, 3 * 4096 + 4) == 'x');
  CHECK(mapped_read_failures() == before);
  // Many threads at once: every one of them goes on.
  std::vector<std::thread> readers;
  std::atomic<int> zeros{0};
  for (int t = 0; t < 8; ++t)
    readers.emplace_back([&, t] {
      for (std::size_t i = kSize; i-- > 4 * 4096;)
        if (i % 8 == static_cast<std::size_t>(t) && at(*cut, i) == 0) ++zeros;
    });
  for (std::thread& reader : readers) reader.join();
  CHECK(zeros == kSize - 4 * 4096);
  CHECK(mapped_read_failures() > before);
  CHECK(mapped_reads_succeeded_since(before).error().kind == ErrorKind::Io);
  CHECK(at(*cut, 0) == 'x');
  CHECK(at(*other, kSize / 2) == 0);
  CHECK_FALSE(*identity_of(path) == *identity);
  CHECK(identity_of(folder.path / "absent").error().kind == ErrorKind::NotFound);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // which report it themselves
  // A fault that is of no mapping is not swallowed.
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGBUS);
    ::raise(SIGBUS);  // the first put the default back
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
#endif
}

TEST_CASE("anonymous memory is zero, writable, and moves") {
  auto map = MemoryMap::anonymous(3 * 4096);
  REQUIRE(map);
  CHECK(std::to_integer<int>(map->data()[8191]) == 0);
  map->data()[8191] = std::byte{7};
  MemoryMap other = std::move(*map);
  CHECK(map->size() == 0);
  CHECK(std::to_integer<int>(other.data()[8191]) == 7);
  const auto impossible = MemoryMap::anonymous(std::size_t{1} << 62);
  REQUIRE_FALSE(impossible);
  CHECK(impossible.error().kind == ErrorKind::Unavailable);
  CHECK(available_memory_bytes() > 0);
}
