#include "orchestrator/store/sqlite.h"

#include <errno.h>
#include <sqlite3.h>

#include <utility>

namespace amk::sql {
namespace {

// The path within the project, whatever the compiler was given.
std::string place_text(const Place& where) {
  std::string_view file = where.file;
  if (const auto at = file.rfind("/orchestrator/"); at != std::string_view::npos)
    file.remove_prefix(at + 1);
  else if (const auto slash = file.rfind('/'); slash != std::string_view::npos)
    file.remove_prefix(slash + 1);
  return std::string(file) + ":" + std::to_string(where.line);
}

struct Meaning {
  ErrorKind kind;
  const char* reason;
};

Meaning meaning_of(int code, int system_errno) {
  if (code == SQLITE_CONSTRAINT_UNIQUE || code == SQLITE_CONSTRAINT_PRIMARYKEY || code == SQLITE_CONSTRAINT_ROWID)
    return {ErrorKind::Conflict, "not-unique"};
  switch (code & 0xFF) {
    case SQLITE_FULL:
      return {ErrorKind::Unavailable, "disk-full"};
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {ErrorKind::Unavailable, "busy"};
    case SQLITE_READONLY:
      return {ErrorKind::Unavailable, "read-only"};
    case SQLITE_NOMEM:
      return {ErrorKind::Unavailable, "out-of-memory"};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {ErrorKind::Corrupt, "damaged"};
    case SQLITE_TOOBIG:
      return {ErrorKind::InvalidArgument, "too-big"};
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
      // A full quota, or a disk without free inodes, is reported as an I/O error.
      if (system_errno == ENOSPC || system_errno == EDQUOT || system_errno == EFBIG) return {ErrorKind::Unavailable, "disk-full"};
      return {ErrorKind::Io, "io"};
    default:
      return {ErrorKind::Internal, "sqlite"};
  }
}

}  // namespace

Error sqlite_error(sqlite3* db, int code, std::string_view call, std::string_view sql, const Place& where) {
  const int system_errno = db != nullptr ? sqlite3_system_errno(db) : 0;
  const Meaning meaning = meaning_of(code, system_errno);
  const std::string text = db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code);
  std::string message = std::string(call) + ": " + text + " (SQLite code " + std::to_string(code) + ") at " + place_text(where);
  if (!sql.empty()) message += " in \"" + std::string(sql.substr(0, 160)) + "\"";
  Json data = {{"reason", meaning.reason}, {"call", call}, {"code", code}, {"place", place_text(where)}};
  if (system_errno != 0 && meaning.kind != ErrorKind::Conflict) data["errno"] = system_errno;
  return Error{meaning.kind, std::move(message), std::move(data)};
}

bool is_disk_full(const Error& error) { return error.kind == ErrorKind::Unavailable && error.data.value("reason", "") == "disk-full"; }

bool is_machine_failure(const Error& error) {
  if (!error.data.is_object() || !error.data.contains("reason")) return false;
  const Json& reason = error.data["reason"];
  for (const char* word : {"disk-full", "busy", "io", "out-of-memory", "read-only"})
    if (reason == word) return true;
  return false;
}

Query::Query(Query&& other) noexcept
    : db_(other.db_), statement_(std::exchange(other.statement_, nullptr)), cached_(std::exchange(other.cached_, nullptr)), where_(other.where_) {}

Query::~Query() {
  if (statement_ == nullptr) return;
  if (cached_ == nullptr) {
    sqlite3_finalize(statement_);
    return;
  }
  // reset() repeats the last step's error, which next() has reported already.
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
  cached_->in_use = false;
}

Status Query::check(int code, std::string_view call) const {
  if (code == SQLITE_OK || code == SQLITE_ROW || code == SQLITE_DONE) return {};
  return tl::unexpected<Error>(sqlite_error(db_, code, call, sqlite3_sql(statement_), where_));
}

Status Query::bind(int index, std::nullptr_t) { return check(sqlite3_bind_null(statement_, index), "sqlite3_bind_null"); }
Status Query::bind(int index, std::int64_t value) { return check(sqlite3_bind_int64(statement_, index, value), "sqlite3_bind_int64"); }
Status Query::bind(int index, double value) { return check(sqlite3_bind_double(statement_, index, value), "sqlite3_bind_double"); }
Status Query::bind(int index, std::string_view value) {
  return check(sqlite3_bind_text64(statement_, index, value.data() == nullptr ? "" : value.data(), value.size(), SQLITE_TRANSIENT, SQLITE_UTF8),
               "sqlite3_bind_text64");
}

Result<bool> Query::next() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  AMK_CHECK(check(code, "sqlite3_step"));
  return fail(ErrorKind::Internal, "sqlite3_step returned an unknown code " + std::to_string(code) + " at " + place_text(where_));
}

bool Query::null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
std::int64_t Query::i64(int column) const { return sqlite3_column_int64(statement_, column); }
double Query::f64(int column) const { return sqlite3_column_double(statement_, column); }
std::string_view Query::view(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (bytes == nullptr) return {};
  return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}
std::string Query::text(int column) const { return std::string(view(column)); }
std::optional<std::int64_t> Query::opt_i64(int column) const { return null(column) ? std::nullopt : std::optional(i64(column)); }
std::optional<double> Query::opt_f64(int column) const { return null(column) ? std::nullopt : std::optional(f64(column)); }

Result<std::unique_ptr<Connection>> Connection::open(const std::string& path, const OpenFlags& flags) {
  int mode = flags.read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
  if (flags.create) mode |= SQLITE_OPEN_CREATE;
  // One thread at a time uses a connection: no mutex of SQLite's own is needed.
  mode |= SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  sqlite3* db = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &db, mode, flags.vfs.empty() ? nullptr : flags.vfs.c_str());
  std::unique_ptr<Connection> out(new Connection(db));
  if (code != SQLITE_OK) {
    Error error = sqlite_error(db, code, "sqlite3_open_v2", "", {__FILE__, __LINE__});
    error.message += ": " + path;
    return tl::unexpected<Error>(std::move(error));
  }
  // A stored file must not be able to run code of its own choosing through views or triggers it brought along.
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  return out;
}

Connection::~Connection() {
  for (auto& [text, cached] : statements_) sqlite3_finalize(cached->statement);
  sqlite3_close_v2(db_);
}

Status Connection::exec(const std::string& sql, const char* file, int line) {
  const int code = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return tl::unexpected<Error>(sqlite_error(db_, code, "sqlite3_exec", sql, {file, line}));
  return {};
}

Result<Query> Connection::prepare(const Sql& sql) {
  std::unique_ptr<Query::Cached>& cached = statements_[sql.text];
  if (!cached) cached = std::make_unique<Query::Cached>();
  const bool spare = cached->in_use;
  sqlite3_stmt* statement = spare ? nullptr : cached->statement;
  if (statement == nullptr) {
    const int code = sqlite3_prepare_v3(db_, sql.text, -1, spare ? 0 : SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (code != SQLITE_OK) return tl::unexpected<Error>(sqlite_error(db_, code, "sqlite3_prepare_v3", sql.text, sql.where));
    if (!spare) cached->statement = statement;
  }
  if (!spare) cached->in_use = true;
  return Query(db_, statement, spare ? nullptr : cached.get(), sql.where);
}

Result<std::string> Connection::pragma(const std::string& name, const char* file, int line) {
  const Place where{file, line};
  sqlite3_stmt* statement = nullptr;
  const std::string sql = "PRAGMA " + name;
  int code = sqlite3_prepare_v3(db_, sql.c_str(), -1, 0, &statement, nullptr);
  if (code != SQLITE_OK) return tl::unexpected<Error>(sqlite_error(db_, code, "sqlite3_prepare_v3", sql, where));
  code = sqlite3_step(statement);
  std::string value;
  if (code == SQLITE_ROW)
    if (const auto* text = sqlite3_column_text(statement, 0)) value = reinterpret_cast<const char*>(text);
  if (code != SQLITE_ROW && code != SQLITE_DONE) {
    Error error = sqlite_error(db_, code, "sqlite3_step", sql, where);
    sqlite3_finalize(statement);
    return tl::unexpected<Error>(std::move(error));
  }
  sqlite3_finalize(statement);
  return value;
}

std::int64_t Connection::changes() const { return sqlite3_changes64(db_); }
std::int64_t Connection::last_insert_id() const { return sqlite3_last_insert_rowid(db_); }
bool Connection::in_transaction() const { return sqlite3_get_autocommit(db_) == 0; }

}  // namespace amk::sql
