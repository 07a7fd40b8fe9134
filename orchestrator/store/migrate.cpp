#include "orchestrator/store/migrate.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>

#include <charconv>
#include <cstdint>
#include <fstream>
#include <system_error>

#include "orchestrator/store/failpoint.h"
#include "orchestrator/store/filesystem.h"

namespace amk {
namespace {

Result<int> pragma_int(sql::Connection& connection, const std::string& name) {
  AMK_TRY(text, connection.pragma(name));
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// user_version and application_id as they stand in the first page (offsets 60 and 68 of the file format), whatever a journal says.
struct RawHeader {
  int version = 0, application = 0;
};
Result<RawHeader> raw_header(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  unsigned char page[100] = {};
  in.read(reinterpret_cast<char*>(page), sizeof page);
  if (in.gcount() != sizeof page) return RawHeader{};
  const auto big_endian = [&page](int at) {
    return static_cast<int>(std::uint32_t{page[at]} << 24 | page[at + 1] << 16 | page[at + 2] << 8 | page[at + 3]);
  };
  return RawHeader{big_endian(60), big_endian(68)};
}

tl::unexpected<Error> not_ours(const std::filesystem::path& file, int application) {
  return fail(ErrorKind::Corrupt, file.string() + " is another program's SQLite database; accepted: a store made by amk, or no file",
              {{"reason", "not-ours"}, {"path", file.string()}, {"application_id", application}});
}

Status refuse_newer(const std::filesystem::path& file, int version, const Schema& schema) {
  if (version <= schema.version()) return {};
  return fail(ErrorKind::Unsupported,
              file.string() + " has schema version " + std::to_string(version) + ", which is newer than this build's " +
                  std::to_string(schema.version()) + "; it was not touched: use a newer amk, or another workspace",
              {{"reason", "newer-schema"}, {"version", version}, {"supported", schema.version()}, {"path", file.string()}});
}

// A transaction that was cut short in rollback mode: only a connection that may write can undo it and see what the file says.
bool needs_rollback(const Error& error) { return error.data.is_object() && error.data.value("code", 0) == SQLITE_READONLY_ROLLBACK; }

Status run_step(sql::Connection& connection, const SchemaStep& step) {
  AMK_CHECK(connection.exec(step.sql));
  AMK_CHECK(connection.exec("PRAGMA application_id = " + std::to_string(kApplicationId)));
  AMK_CHECK(connection.exec("PRAGMA user_version = " + std::to_string(step.version)));
  AMK_CHECK(failpoint::check(Failpoint::MigrateStep));
  return connection.exec("COMMIT");
}

Status back_up_before(sql::Connection& connection, int version, const std::filesystem::path& backups) {
  std::error_code code;
  std::filesystem::create_directories(backups, code);
  if (code) return system_error("mkdir", backups, code.value());
  for (const auto& entry : std::filesystem::directory_iterator(backups, code))
    if (entry.path().extension() == ".partial") std::filesystem::remove(entry.path(), code);  // of a copy that was interrupted
  AMK_CHECK(failpoint::check(Failpoint::MigrateBackup));
  for (int n = 1;; ++n) {
    const std::filesystem::path to = backups / ("store-v" + std::to_string(version) + "-" + std::to_string(n) + ".sqlite");
    if (std::filesystem::exists(to, code)) continue;
    AMK_CHECK(copy_database(connection, to));
    return failpoint::check(Failpoint::MigrateBackupDone);
  }
}

}  // namespace

Result<int> inspect_store_file(const std::filesystem::path& file, const Schema& schema, const std::string& vfs) {
  std::error_code code, log_code;
  const auto size = std::filesystem::file_size(file, code);
  if (code || size == 0) {
    // SQLite would take it for a new one, and throw the log away. No crash leaves it so: the file has its first page before there is a log.
    if (const auto log = std::filesystem::file_size(file.string() + "-wal", log_code); !log_code && log > 0)
      return fail(ErrorKind::Corrupt,
                  file.string() + " is " + (code ? "gone" : "empty") + ", and its log store.sqlite-wal is not: it was cut or moved alone",
                  {{"reason", "damaged"}, {"path", file.string()}});
    return 0;
  }
  AMK_TRY(connection, sql::Connection::open(file.string(), {.create = false, .read_only = true, .vfs = vfs}));
  // Closing must not fold the log into a file that may not be ours to change.
  sqlite3_db_config(connection->handle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  const Result<int> version_now = pragma_int(*connection, "user_version");
  if (!version_now && needs_rollback(version_now.error())) {
    AMK_TRY(header, raw_header(file));
    if (header.application != kApplicationId && header.application != 0) return not_ours(file, header.application);
    AMK_CHECK(refuse_newer(file, header.version, schema));
    return header.version;
  }
  AMK_TRY(version, version_now);
  AMK_TRY(application, pragma_int(*connection, "application_id"));
  if (application != kApplicationId && (application != 0 || version != 0)) return not_ours(file, application);
  AMK_CHECK(refuse_newer(file, version, schema));
  if (application == 0) {
    // A file that died between its creation and its first step has no tables; one with tables is somebody else's.
    AMK_TRY(tables, connection->value_i64("SELECT count(*) FROM sqlite_schema"));
    if (tables.value_or(0) > 0) return not_ours(file, application);
  }
  return version;
}

Status migrate(sql::Connection& connection, const Schema& schema, const std::filesystem::path& backups) {
  AMK_TRY(before, pragma_int(connection, "user_version"));
  AMK_CHECK(refuse_newer("the store", before, schema));  // seen only now when a transaction had to be undone first
  if (before == schema.version()) return {};
  if (before > 0) AMK_CHECK(back_up_before(connection, before, backups));
  for (const SchemaStep& step : schema.steps) {
    AMK_CHECK(connection.exec("BEGIN EXCLUSIVE"));
    Result<int> now = pragma_int(connection, "user_version");
    Status done = now ? Status{} : Status(tl::unexpected<Error>(now.error()));
    if (now && step.version > *now) done = run_step(connection, step);
    if (connection.in_transaction()) {
      Status undone = connection.exec("ROLLBACK");
      if (done && !undone) done = undone;
    }
    if (!done) {
      Error error = std::move(done).error();
      error.message = "migration to schema version " + std::to_string(step.version) + ": " + error.message;
      return tl::unexpected<Error>(std::move(error));
    }
    AMK_CHECK(failpoint::check(Failpoint::MigrateStepDone));
  }
  return {};
}

Status copy_database(sql::Connection& from, const std::filesystem::path& to) {
  std::error_code code;
  if (std::filesystem::exists(to, code)) return fail(ErrorKind::Conflict, to.string() + " exists already", {{"path", to.string()}});
  const std::filesystem::path partial = to.string() + ".partial";
  std::filesystem::remove(partial, code);
  {
    AMK_TRY(copy, sql::Connection::open(partial.string(), {.create = true, .read_only = false, .vfs = {}}));
    AMK_CHECK(copy->exec("PRAGMA synchronous=FULL"));
    sqlite3_backup* backup = sqlite3_backup_init(copy->handle(), "main", from.handle(), "main");
    if (backup == nullptr)
      return tl::unexpected<Error>(
          sql::sqlite_error(copy->handle(), sqlite3_errcode(copy->handle()), "sqlite3_backup_init", to.string(), {__FILE__, __LINE__}));
    int step = SQLITE_OK;
    do step = sqlite3_backup_step(backup, 4096);
    while (step == SQLITE_OK);
    const int finish = sqlite3_backup_finish(backup);
    if (step != SQLITE_DONE || finish != SQLITE_OK) {
      Error error = sql::sqlite_error(copy->handle(), step != SQLITE_DONE ? step : finish, "sqlite3_backup_step", to.string(), {__FILE__, __LINE__});
      copy.reset();
      std::filesystem::remove(partial, code);
      return tl::unexpected<Error>(std::move(error));
    }
    // One file that needs no log beside it.
    AMK_CHECK(copy->exec("PRAGMA journal_mode=DELETE"));
  }
  AMK_CHECK(failpoint::check(Failpoint::BackupCopied));
  if (::rename(partial.c_str(), to.c_str()) != 0) return system_error("rename", to, errno);
  return sync_directory(to.parent_path());
}

}  // namespace amk
