#include "orchestrator/store/readers.h"

#include <sqlite3.h>

#include <exception>
#include <utility>

namespace amk {

Result<std::unique_ptr<Readers>> Readers::open(const std::string& path, const std::string& vfs, int count) {
  std::unique_ptr<Readers> readers(new Readers);
  for (int i = 0; i < count; ++i) {
    AMK_TRY(connection, sql::Connection::open(path, {.create = false, .read_only = false, .vfs = vfs}));
    sqlite3_db_config(connection->handle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    sqlite3_busy_timeout(connection->handle(), 10'000);  // rollback mode: a commit takes the file for a moment
    AMK_CHECK(connection->exec(
        "PRAGMA query_only=1; PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=-8192; PRAGMA temp_store=MEMORY; PRAGMA cell_size_check=1"));
    readers->free_.push_back(std::move(connection));
  }
  return readers;
}

Status Readers::with_snapshot(const std::function<Status(sql::Connection&)>& body) {
  std::unique_ptr<sql::Connection> connection;
  {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [this] { return !free_.empty(); });
    connection = std::move(free_.back());
    free_.pop_back();
  }
  Status status = connection->run("BEGIN").map([](std::int64_t) {});
  if (status) {
    try {
      status = body(*connection);
    } catch (const std::exception& e) {
      status = fail(ErrorKind::Internal, std::string("reading the store: ") + e.what());
    }
  }
  if (connection->in_transaction()) {
    const auto ended = connection->run("COMMIT");
    if (status && !ended) status = tl::unexpected<Error>(ended.error());
    if (connection->in_transaction()) (void)connection->run("ROLLBACK");
  }
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(connection));
  }
  freed_.notify_one();
  return status;
}

}  // namespace amk
