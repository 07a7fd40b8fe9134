#include "orchestrator/store/store.h"

#include <doctest/doctest.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include "orchestrator/store/failpoint.h"
#include "orchestrator/store/schema.h"
#include "orchestrator/store/sqlite.h"
#include "tests/support/temp_folder.h"

using namespace amk;

namespace {

std::unique_ptr<Store> open_store(const std::filesystem::path& folder, JournalMode journal = JournalMode::Auto) {
  StoreOptions options;
  options.workspace = folder;
  options.journal = journal;
  options.reserve_bytes = 1 << 20;
  auto store = Store::open(options);
  REQUIRE_MESSAGE(store.has_value(), (store ? "" : store.error().message));
  return std::move(*store);
}

Status put(Store& store, const std::string& name, std::int64_t value, OnDiskFull on_full = OnDiskFull::Fail) {
  auto done = store.write<std::int64_t>(
      "putting " + name, [=](sql::Connection& c) { return c.run("INSERT INTO meta(name, value) VALUES(?1, ?2)", name, value); }, on_full);
  if (!done) return tl::unexpected<Error>(done.error());
  return {};
}

std::optional<std::int64_t> get(Store& store, const std::string& name) {
  auto value =
      store.read<std::optional<std::int64_t>>([&](sql::Connection& c) { return c.value_i64("SELECT value FROM meta WHERE name = ?1", name); });
  REQUIRE(value.has_value());
  return *value;
}

struct Disarm {
  ~Disarm() { failpoint::disarm(); }
};

}  // namespace

TEST_CASE("what was written is there after reopening, in both journal modes") {
  for (JournalMode mode : {JournalMode::Auto, JournalMode::Rollback}) {
    test::TempFolder folder;
    {
      auto store = open_store(folder.path, mode);
      CHECK(store->incarnation() == 1);
      CHECK(put(*store, "x", 7));
      CHECK(store->health().journal_mode.starts_with(mode == JournalMode::Rollback ? "rollback" : "wal"));
    }
    auto store = open_store(folder.path, mode);
    CHECK(get(*store, "x") == 7);
    CHECK(store->incarnation() == 2);
    CHECK(store->health().store_id.size() == 32);
  }
}

TEST_CASE("a workspace has one store at a time, and the lock goes with it") {
  test::TempFolder folder;
  auto first = open_store(folder.path);
  StoreOptions options;
  options.workspace = folder.path;
  auto second = Store::open(options);
  REQUIRE_FALSE(second);
  CHECK(second.error().kind == ErrorKind::Conflict);
  CHECK(second.error().data["reason"] == "locked");
  CHECK(second.error().data["pid"] == ::getpid());
  first.reset();
  CHECK(Store::open(options).has_value());
}

TEST_CASE("an error of one write undoes that write alone, though it shared a commit") {
  test::TempFolder folder;
  auto store = open_store(folder.path);
  REQUIRE(put(*store, "taken", 1));
  std::atomic<int> conflicts{0}, written{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const Status good = put(*store, "k" + std::to_string(t) + "." + std::to_string(i), i);
        if (good) ++written;
        // Writes its first row, then runs into the uniqueness of the second: neither may stay.
        auto bad = store->write<std::int64_t>("a pair", [=](sql::Connection& c) -> Result<std::int64_t> {
          AMK_CHECK(c.run("INSERT INTO meta(name, value) VALUES(?1, 1)", "orphan" + std::to_string(t) + "." + std::to_string(i)));
          return c.run("INSERT INTO meta(name, value) VALUES('taken', 2)");
        });
        if (!bad && bad.error().kind == ErrorKind::Conflict) ++conflicts;
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(written == 400);
  CHECK(conflicts == 400);
  auto orphans =
      store->read<std::optional<std::int64_t>>([](sql::Connection& c) { return c.value_i64("SELECT count(*) FROM meta WHERE name LIKE 'orphan%'"); });
  CHECK(orphans.value() == 0);
  CHECK(get(*store, "taken") == 1);
  CHECK(store->health().commits <= store->health().writes);
}

TEST_CASE("errors name the call, the code and the place") {
  test::TempFolder folder;
  auto store = open_store(folder.path);
  auto bad = store->read<std::int64_t>([](sql::Connection& c) { return c.run("DELETE FROM meta"); });
  REQUIRE_FALSE(bad);
  CHECK(bad.error().data["call"] == "sqlite3_step");
  CHECK(bad.error().data["code"] == 8);  // SQLITE_READONLY
  CHECK(bad.error().data["place"].get<std::string>().find("store_test.cpp:") != std::string::npos);
  auto thrown = store->write<int>("throwing", [](sql::Connection&) -> Result<int> { throw std::runtime_error("oops"); });
  REQUIRE_FALSE(thrown);
  CHECK(thrown.error().kind == ErrorKind::Internal);
  CHECK(put(*store, "after", 1));
}

TEST_CASE("files that are not ours, newer or damaged are refused and stay as they are") {
  test::TempFolder folder;
  const auto file = folder.path / "store.sqlite";
  const auto bytes = [&] {
    std::ifstream in(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  StoreOptions options;
  options.workspace = folder.path;

  SUBCASE("newer schema") {
    { auto store = open_store(folder.path); }
    {
      auto c = sql::Connection::open(file.string(), {});
      REQUIRE((*c)->exec("PRAGMA user_version = 999"));
    }
    const std::string before = bytes();
    auto opened = Store::open(options);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().kind == ErrorKind::Unsupported);
    CHECK(opened.error().data["version"] == 999);
    CHECK(bytes() == before);
  }
  SUBCASE("another program's database") {
    {
      auto c = sql::Connection::open(file.string(), {.create = true, .read_only = false, .vfs = {}});
      REQUIRE((*c)->exec("CREATE TABLE theirs(x)"));
    }
    const std::string before = bytes();
    auto opened = Store::open(options);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().kind == ErrorKind::Corrupt);
    CHECK(opened.error().data["reason"] == "not-ours");
    CHECK(bytes() == before);
  }
  SUBCASE("not a database at all") {
    std::ofstream(file) << std::string(8192, 'x');
    const std::string before = bytes();
    auto opened = Store::open(options);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().kind == ErrorKind::Corrupt);
    CHECK(opened.error().message.find("backups/") != std::string::npos);
    CHECK(bytes() == before);
  }
  SUBCASE("cut to nothing, or moved alone, while its log has what was acknowledged") {
    std::string log;
    {
      auto store = open_store(folder.path);
      log = [&] {
        std::ifstream in(file.string() + "-wal", std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(in), {});
      }();
    }
    REQUIRE(!log.empty());
    std::ofstream(file.string() + "-wal", std::ios::binary) << log;  // as a killed daemon leaves it
    for (const bool gone : {false, true}) {
      CAPTURE(gone);
      std::ofstream(file, std::ios::binary | std::ios::trunc);
      if (gone) std::filesystem::remove(file);
      auto opened = Store::open(options);
      REQUIRE_FALSE(opened);
      CHECK(opened.error().kind == ErrorKind::Corrupt);
      CHECK(opened.error().message.find("backups/") != std::string::npos);
      CHECK(std::filesystem::file_size(file.string() + "-wal") == log.size());
      CHECK(std::filesystem::exists(file) != gone);
    }
  }
  SUBCASE("network file system") {
    options.filesystem_magic = 0x6969;
    auto opened = Store::open(options);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().kind == ErrorKind::Unsupported);
    CHECK(opened.error().data["filesystem"] == "nfs");
    CHECK_FALSE(std::filesystem::exists(file));
  }
  SUBCASE("a file system that may lack shared memory gets the rollback journal") {
    options.filesystem_magic = 0x65735546;
    auto opened = Store::open(options);
    REQUIRE(opened);
    CHECK((*opened)->health().journal_mode.starts_with("rollback"));
  }
}

TEST_CASE("a full disk: typed error, finished results wait in memory, space is given back and taken again") {
  test::TempFolder folder;
  const Disarm disarm;
  REQUIRE(failpoint::arm("vfs.db.sync=error@1000000"));  // armed before opening, so that the store uses the shim
  auto store = open_store(folder.path);
  REQUIRE(put(*store, "before", 1));
  CHECK(store->health().reserve_bytes == 1 << 20);

  // The file system stays full even after the reserve was given back.
  REQUIRE(failpoint::arm("vfs.wal.write=enospc@1+"));
  const Status lost = put(*store, "forgotten", 2);
  REQUIRE_FALSE(lost);
  CHECK(lost.error().kind == ErrorKind::Unavailable);
  CHECK(lost.error().data["reason"] == "disk-full");
  CHECK(lost.error().data["kept"] == false);
  const Status kept = put(*store, "kept", 3, OnDiskFull::Keep);
  REQUIRE_FALSE(kept);
  CHECK(kept.error().data["kept"] == true);
  CHECK(store->disk_full());
  CHECK(store->health().kept_writes == 1);
  CHECK_FALSE(std::filesystem::exists(folder.path / "reserve.bin"));
  CHECK_FALSE(get(*store, "kept").has_value());

  REQUIRE(failpoint::arm("vfs.db.sync=error@1000000"));  // space is back
  CHECK(put(*store, "next", 4));
  CHECK(get(*store, "kept") == 3);
  CHECK(get(*store, "next") == 4);
  CHECK_FALSE(get(*store, "forgotten").has_value());
  CHECK(store->health().kept_writes == 0);
  CHECK_FALSE(store->disk_full());
  CHECK(std::filesystem::exists(folder.path / "reserve.bin"));
}

TEST_CASE("a disk that is full only until the reserve is given back loses nothing") {
  test::TempFolder folder;
  const Disarm disarm;
  REQUIRE(failpoint::arm("tsv.append=error@1000000"));
  auto store = open_store(folder.path);
  REQUIRE(failpoint::arm("vfs.wal.write=enospc@3"));
  for (int i = 0; i < 5; ++i) CHECK(put(*store, "n" + std::to_string(i), i));
  for (int i = 0; i < 5; ++i) CHECK(get(*store, "n" + std::to_string(i)) == i);
}

TEST_CASE("an I/O error at any durable step is reported, and the store goes on") {
  for (const char* point : {"write.begin", "write.body", "write.commit", "vfs.wal.write", "vfs.wal.sync", "vfs.db.write", "vfs.db.sync"}) {
    CAPTURE(point);
    test::TempFolder folder;
    const Disarm disarm;
    REQUIRE(failpoint::arm("tsv.append=error@1000000"));
    auto store = open_store(folder.path);
    REQUIRE(put(*store, "a", 1));
    REQUIRE(failpoint::arm(std::string(point) + "=error@1"));
    const Status status = put(*store, "b", 2);
    if (!status) CHECK(status.error().kind == ErrorKind::Io);
    if (status) CHECK(get(*store, "b") == 2);
    failpoint::disarm();
    REQUIRE(put(*store, "c", 3));
    store.reset();
    store = open_store(folder.path);
    CHECK(get(*store, "a") == 1);
    CHECK(get(*store, "c") == 3);
    if (status) CHECK(get(*store, "b") == 2);
  }
}

TEST_CASE("backup is a whole, openable copy") {
  test::TempFolder folder, other;
  auto store = open_store(folder.path);
  REQUIRE(put(*store, "x", 5));
  REQUIRE(store->backup(other.path / "store.sqlite"));
  const Status again = store->backup(other.path / "store.sqlite");
  REQUIRE_FALSE(again);
  CHECK(again.error().kind == ErrorKind::Conflict);
  auto copy = open_store(other.path);
  CHECK(get(*copy, "x") == 5);
  CHECK(copy->health().store_id == store->health().store_id);
}
