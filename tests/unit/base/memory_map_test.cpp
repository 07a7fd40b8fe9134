#include <doctest/doctest.h>

#include <fstream>

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
