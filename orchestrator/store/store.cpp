#include "orchestrator/store/store.h"

#include <sqlite3.h>

#include <utility>

#include "core/base/random_hex.h"
#include "orchestrator/store/failpoint.h"
#include "orchestrator/store/filesystem.h"
#include "orchestrator/store/group_writer.h"
#include "orchestrator/store/journal_choice.h"
#include "orchestrator/store/migrate.h"
#include "orchestrator/store/readers.h"
#include "orchestrator/store/vfs_shim.h"

namespace amk {
namespace {

constexpr int kOldestSqlite = 3'037'000;  // STRICT tables

}  // namespace

struct Store::Impl {
  Impl(StoreOptions o, WorkspaceLock l) : options(std::move(o)), lock(std::move(l)), file(options.workspace / "store.sqlite") {}
  StoreOptions options;
  WorkspaceLock lock;
  std::filesystem::path file;
  std::string store_id, journal_mode;
  int schema_version = 0;
  std::int64_t incarnation = 0;
  // Destroyed from the last to the first: readers go before the connection that folds the log on close, the lock goes last.
  std::unique_ptr<GroupWriter> writer;
  std::unique_ptr<Readers> readers;
};

namespace {

Result<std::unique_ptr<sql::Connection>> open_writer(const std::filesystem::path& file, const std::string& vfs, const JournalChoice& journal) {
  AMK_TRY(connection, sql::Connection::open(file.string(), {.create = true, .read_only = false, .vfs = vfs}));
  sqlite3_busy_timeout(connection->handle(), 10'000);
  // Changing the journal mode writes the header under a rollback journal. Were that journal's deletion not durable, a power failure much later
  // could bring it back, and undo the file to before its log existed: the directory is synced for this step too.
  AMK_CHECK(connection->exec("PRAGMA synchronous=EXTRA"));
  AMK_TRY(mode, connection->pragma(journal.write_ahead_log ? "journal_mode=WAL" : "journal_mode=TRUNCATE"));
  if (mode != (journal.write_ahead_log ? "wal" : "truncate"))
    return fail(ErrorKind::Io, "SQLite could not set the journal mode of " + file.string() + ": it stays " + mode, {{"reason", "io"}});
  // FULL makes a commit durable before it returns; EXTRA also syncs the directory, which only rollback journals need.
  if (journal.write_ahead_log) AMK_CHECK(connection->exec("PRAGMA synchronous=FULL"));
  AMK_CHECK(
      connection->exec("PRAGMA foreign_keys=1; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-65536; PRAGMA secure_delete=0;"
                       "PRAGMA cell_size_check=1; PRAGMA journal_size_limit=67108864"));
  return connection;
}

Error with_advice(Error error, const std::filesystem::path& workspace) {
  if (error.kind == ErrorKind::Corrupt && error.data.value("reason", "") == "damaged")
    error.message += "; nothing was changed. Move store.sqlite and store.sqlite-wal together out of " + workspace.string() +
                     " and put a copy from backups/ in their place";
  return error;
}

}  // namespace

Result<std::unique_ptr<Store>> Store::open(StoreOptions options) {
  AMK_TRY(lock, WorkspaceLock::acquire(options.workspace));
  return open(std::move(options), std::move(lock));
}

Result<std::unique_ptr<Store>> Store::open(StoreOptions options, WorkspaceLock lock) {
  if (sqlite3_libversion_number() < kOldestSqlite)
    return fail(ErrorKind::Unsupported, std::string("SQLite ") + sqlite3_libversion() + " is too old; accepted: 3.37 or newer");
  FilesystemInfo filesystem;
  if (options.filesystem_magic)
    filesystem = classify_filesystem(*options.filesystem_magic, "");
  else {
    AMK_TRY(info, filesystem_of(options.workspace));
    filesystem = std::move(info);
  }
  if (filesystem.kind == FilesystemKind::Network)
    return fail(ErrorKind::Unsupported,
                "the workspace " + options.workspace.string() + " is on a network file system (" + filesystem.name +
                    "), whose locks cannot be trusted; choose a local folder with --workspace and export results from there",
                {{"reason", "network-filesystem"}, {"filesystem", filesystem.name}, {"path", options.workspace.string()}});

  const Schema& schema = options.schema != nullptr ? *options.schema : current_schema();
  if (options.vfs.empty() && failpoint::armed()) options.vfs = failpoint_vfs();
  auto impl = std::make_unique<Impl>(options, std::move(lock));
  const auto open_file = [&]() -> Status {
    AMK_CHECK(inspect_store_file(impl->file, schema, options.vfs));
    const JournalChoice journal = choose_journal(sqlite3_libversion_number(), filesystem.kind, options.journal);
    AMK_TRY(connection, open_writer(impl->file, options.vfs, journal));
    AMK_CHECK(failpoint::check(Failpoint::OpenCreated));
    AMK_CHECK(migrate(*connection, schema, options.workspace / "backups"));
    impl->schema_version = schema.version();
    impl->journal_mode = std::string(journal.write_ahead_log ? "wal" : "rollback") + " (" + journal.why + ")";
    auto reserve = std::make_unique<Reserve>(options.workspace / "reserve.bin", options.reserve_bytes);
    impl->writer = std::make_unique<GroupWriter>(std::move(connection), std::move(reserve),
                                                 GroupWriter::Options{journal.write_ahead_log, options.max_kept_writes});
    AMK_TRY(readers, Readers::open(impl->file.string(), options.vfs, options.readers));
    impl->readers = std::move(readers);
    return {};
  };
  if (Status opened = open_file(); !opened) return tl::unexpected<Error>(with_advice(std::move(opened).error(), options.workspace));

  std::unique_ptr<Store> store(new Store(std::move(impl)));
  AMK_CHECK(store->begin_incarnation());
  return store;
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

// Counts this opening, so that rows can tell whose daemon they belonged to. On a full disk the count waits in memory like any result.
Status Store::begin_incarnation() {
  Impl& impl = *impl_;
  AMK_CHECK(with_reader([&impl](sql::Connection& c) -> Status {
    AMK_TRY(count, c.value_i64("SELECT value FROM meta WHERE name = 'incarnation'"));
    impl.incarnation = count.value_or(0) + 1;
    AMK_TRY(id, c.query("SELECT value FROM meta WHERE name = 'store_id'"));
    AMK_TRY(found, id.next());
    if (found) impl.store_id = id.text(0);
    return {};
  }));
  if (impl.store_id.empty()) {
    AMK_TRY(fresh, random_hex(16));
    impl.store_id = std::move(fresh);
  }
  Status counted = submit(
      "opening the store",
      [incarnation = impl.incarnation, id = impl.store_id](sql::Connection& c) -> Status {
        AMK_CHECK(c.run("INSERT OR REPLACE INTO meta(name, value) VALUES('incarnation', ?1)", incarnation));
        AMK_CHECK(c.run("INSERT OR IGNORE INTO meta(name, value) VALUES('store_id', ?1)", id));
        return {};
      },
      OnDiskFull::Keep);
  if (!counted && !sql::is_disk_full(counted.error())) return counted;
  return {};
}

Status Store::submit(std::string_view what, std::function<Status(sql::Connection&)> body, OnDiskFull on_full) {
  return impl_->writer->submit(what, std::move(body), on_full == OnDiskFull::Keep);
}

Status Store::with_reader(const std::function<Status(sql::Connection&)>& body) const { return impl_->readers->with_snapshot(body); }

const Clock& Store::clock() const { return *impl_->options.clock; }
const std::filesystem::path& Store::workspace() const { return impl_->options.workspace; }
std::int64_t Store::incarnation() const { return impl_->incarnation; }
bool Store::disk_full() const { return impl_->writer->disk_full(); }

Status Store::backup(const std::filesystem::path& to) const {
  return with_reader([&to](sql::Connection& c) { return copy_database(c, to); });
}

StoreHealth Store::health() const {
  const GroupWriter::Figures figures = impl_->writer->figures();
  StoreHealth out;
  out.path = impl_->file.string();
  out.sqlite_version = sqlite3_libversion();
  out.journal_mode = impl_->journal_mode;
  out.store_id = impl_->store_id;
  out.schema_version = impl_->schema_version;
  out.incarnation = impl_->incarnation;
  std::error_code code;
  const auto size = [&code](const std::filesystem::path& path) {
    const auto bytes = std::filesystem::file_size(path, code);
    return code ? std::int64_t{0} : static_cast<std::int64_t>(bytes);
  };
  out.database_bytes = size(impl_->file);
  out.wal_bytes = size(impl_->file.string() + "-wal");
  out.free_bytes = free_bytes(impl_->options.workspace).value_or(0);
  out.reserve_bytes = impl_->writer->reserve_held() ? impl_->options.reserve_bytes : 0;
  out.writes = figures.writes;
  out.commits = figures.commits;
  out.kept_writes = figures.kept_writes;
  out.disk_full = impl_->writer->disk_full();
  out.last_error = figures.last_error;
  return out;
}

Json to_json(const StoreHealth& h) {
  return {{"path", h.path},
          {"sqlite_version", h.sqlite_version},
          {"journal_mode", h.journal_mode},
          {"store_id", h.store_id},
          {"schema_version", h.schema_version},
          {"incarnation", h.incarnation},
          {"database_bytes", h.database_bytes},
          {"wal_bytes", h.wal_bytes},
          {"free_bytes", h.free_bytes},
          {"reserve_bytes", h.reserve_bytes},
          {"writes", h.writes},
          {"commits", h.commits},
          {"kept_writes", h.kept_writes},
          {"disk_full", h.disk_full},
          {"last_error", h.last_error.empty() ? Json(nullptr) : Json(h.last_error)}};
}

}  // namespace amk
