// One workspace's durable memory: a SQLite file that exactly one process may open, guarded by a lock that the OS releases.
//
// Promises
//  * A write is acknowledged (the call returns a value) only after it is durable (synchronous=FULL); writes of several threads share a commit.
//  * The file opens after a kill or power loss at any instant; what was acknowledged is there, once.
//  * A schema that is newer than this build is refused and not touched; an older one is backed up, then migrated.
//  * When the disk is full a write fails with Unavailable {"reason": "disk-full"}; writes made with OnDiskFull::Keep stay in memory and are
//    written as soon as space returns.
// Every method may be called from any thread. Errors name the failing call, its code and the place.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "orchestrator/store/workspace_lock.h"

namespace amk {

namespace sql {
class Connection;
}
struct Schema;  // orchestrator/store/schema.h

enum class JournalMode { Auto, Wal, Rollback };

struct StoreOptions {
  std::filesystem::path workspace;                // created (0700) when missing
  const Clock* clock = &system_clock();           // outlives the store
  JournalMode journal = JournalMode::Auto;        // Auto: by SQLite version and file system, see docs/store.md
  std::int64_t reserve_bytes = 4 << 20;           // space kept aside so that finished results can still be written on a full disk
  int readers = 3;                                // connections for concurrent snapshots
  std::size_t max_kept_writes = 10'000;           // writes that may wait in memory for space
  std::string vfs;                                // name of a registered SQLite VFS; empty: the default. For tests
  const Schema* schema = nullptr;                 // nullptr: current_schema(). For tests of migration
  std::optional<std::uint64_t> filesystem_magic;  // instead of statfs. For tests
};

enum class OnDiskFull {
  Fail,  // the write is forgotten
  Keep,  // the write stays queued in memory and is done when space returns; the caller still gets the disk-full error
};

struct StoreHealth {
  std::string path, sqlite_version, journal_mode, store_id;
  int schema_version = 0;
  std::int64_t incarnation = 0;  // how many times this store was opened for work
  std::int64_t database_bytes = 0, wal_bytes = 0, free_bytes = 0, reserve_bytes = 0;
  std::int64_t writes = 0, commits = 0;  // since open
  std::int64_t kept_writes = 0;          // finished results waiting in memory for space
  bool disk_full = false;                // new work should wait
  std::string last_error;                // of the last failed commit; empty when the last commit succeeded
};
Json to_json(const StoreHealth& health);

class Store {
 public:
  // Conflict {"reason": "locked", "pid"} when another process (or another Store) has the workspace; Unsupported for a newer schema or a network
  // file system; Corrupt when the file is damaged (nothing is changed then; the message says where backups are).
  static Result<std::unique_ptr<Store>> open(StoreOptions options);
  // The same, under a lock the caller took before (a daemon takes it to decide who serves).
  static Result<std::unique_ptr<Store>> open(StoreOptions options, WorkspaceLock lock);
  ~Store();  // waits for queued writes, then closes
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Runs `body` inside a write transaction on the one writing connection; returns what it returned, once that is durable. An error from
  // `body` undoes its changes and is returned. `body` may run several times (after a failed commit) and, with OnDiskFull::Keep, after this
  // call has returned: it captures by value and has no effect but on the connection.
  template <class T>
  Result<T> write(std::string_view what, std::function<Result<T>(sql::Connection&)> body, OnDiskFull on_full = OnDiskFull::Fail) {
    auto slot = std::make_shared<Result<T>>(fail(ErrorKind::Internal, "write did not run"));
    Status done = submit(
        what,
        [slot, body = std::move(body)](sql::Connection& connection) -> Status {
          *slot = body(connection);
          if (!*slot) return tl::unexpected<Error>(slot->error());
          return {};
        },
        on_full);
    if (!done) return tl::unexpected<Error>(std::move(done).error());
    return std::move(*slot);
  }

  // Runs `body` on a consistent snapshot of what is committed. Writing there is refused by SQLite.
  template <class T>
  Result<T> read(const std::function<Result<T>(sql::Connection&)>& body) const {
    Result<T> out = fail(ErrorKind::Internal, "read did not run");
    Status done = with_reader([&](sql::Connection& connection) -> Status {
      out = body(connection);
      if (!out) return tl::unexpected<Error>(out.error());
      return {};
    });
    if (!done) return tl::unexpected<Error>(std::move(done).error());
    return out;
  }

  StoreHealth health() const;
  const Clock& clock() const;
  const std::filesystem::path& workspace() const;
  std::int64_t incarnation() const;
  bool disk_full() const;  // cheap; true: do not start new work
  // A consistent copy of the database as one file (temporary name, fsync, rename). Conflict when `to` exists.
  Status backup(const std::filesystem::path& to) const;

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  Status begin_incarnation();
  Status submit(std::string_view what, std::function<Status(sql::Connection&)> body, OnDiskFull on_full);
  Status with_reader(const std::function<Status(sql::Connection&)>& body) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace amk
