// SQLite with every call checked. A failure names the call, the result code and the place in our source. A Connection and its Statements
// belong to one thread at a time; nothing here locks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/base/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace amk::sql {

// A place in our source. (std::source_location is missing where Clang 14 meets GCC's library; the built-ins are in both.)
struct Place {
  const char* file = "";
  int line = 0;
};

// SQL text with the place that uses it. The text must be a literal: prepared statements are cached by its address.
struct Sql {
  consteval Sql(const char* literal, const char* file = __builtin_FILE(), int line = __builtin_LINE()) : text(literal), where{file, line} {}
  const char* text;
  Place where;
};

// disk-full, busy, read-only, out-of-memory: the machine's state, not the data's. Corrupt: the file. Conflict: a uniqueness rule.
Error sqlite_error(sqlite3* db, int code, std::string_view call, std::string_view sql, const Place& where);
bool is_disk_full(const Error& error);
bool is_machine_failure(const Error& error);  // the same write may succeed later: disk full, busy, I/O error, out of memory

class Connection;

// One running statement. Resets itself for the next use when it goes.
class Query {
 public:
  Query(Query&& other) noexcept;
  Query(const Query&) = delete;
  ~Query();

  Result<bool> next();  // false: no more rows
  bool null(int column) const;
  std::int64_t i64(int column) const;
  double f64(int column) const;
  std::string text(int column) const;
  std::string_view view(int column) const;  // until the next call of next()
  std::optional<std::int64_t> opt_i64(int column) const;
  std::optional<double> opt_f64(int column) const;

 private:
  friend class Connection;
  struct Cached {
    sqlite3_stmt* statement = nullptr;
    bool in_use = false;
  };
  Query(sqlite3* db, sqlite3_stmt* statement, Cached* cached, Place where) : db_(db), statement_(statement), cached_(cached), where_(where) {}
  Status bind(int index, std::nullptr_t);
  Status bind(int index, std::int64_t value);
  Status bind(int index, double value);
  Status bind(int index, std::string_view value);
  Status bind(int index, int value) { return bind(index, std::int64_t{value}); }
  Status bind(int index, bool value) { return bind(index, std::int64_t{value}); }
  Status bind(int index, const char* value) { return bind(index, std::string_view(value)); }
  Status bind(int index, const std::string& value) { return bind(index, std::string_view(value)); }
  template <class T>
  Status bind(int index, const std::optional<T>& value) {
    return value ? bind(index, *value) : bind(index, nullptr);
  }
  Status check(int code, std::string_view call) const;

  sqlite3* db_;
  sqlite3_stmt* statement_;
  Cached* cached_;  // where the statement goes back to; nullptr: it is finalised (the cached one was in use)
  Place where_;
};

struct OpenFlags {
  bool create = false;
  bool read_only = false;
  std::string vfs;  // empty: default
};

class Connection {
 public:
  static Result<std::unique_ptr<Connection>> open(const std::string& path, const OpenFlags& flags);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Statements without results, given as text that need not be a literal: pragmas, schema.
  Status exec(const std::string& sql, const char* file = __builtin_FILE(), int line = __builtin_LINE());
  // A prepared statement with its parameters bound in order.
  template <class... A>
  Result<Query> query(Sql sql, const A&... parameters) {
    AMK_TRY(q, prepare(sql));
    int index = 0;
    Status status{};
    (void)((status = q.bind(++index, parameters)) && ...);
    if (!status) return tl::unexpected<Error>(std::move(status).error());
    return q;
  }
  // Runs a statement to its end; returns the number of rows it changed.
  template <class... A>
  Result<std::int64_t> run(Sql sql, const A&... parameters) {
    AMK_TRY(q, query(sql, parameters...));
    for (;;) {
      AMK_TRY(more, q.next());
      if (!more) return changes();
    }
  }
  // The single value of a single-row query; nullopt when there is no row or it is NULL.
  template <class... A>
  Result<std::optional<std::int64_t>> value_i64(Sql sql, const A&... parameters) {
    AMK_TRY(q, query(sql, parameters...));
    AMK_TRY(row, q.next());
    return row ? q.opt_i64(0) : std::nullopt;
  }
  Result<std::string> pragma(const std::string& name, const char* file = __builtin_FILE(), int line = __builtin_LINE());

  std::int64_t changes() const;
  std::int64_t last_insert_id() const;
  bool in_transaction() const;
  sqlite3* handle() { return db_; }

 private:
  explicit Connection(sqlite3* db) : db_(db) {}
  Result<Query> prepare(const Sql& sql);

  sqlite3* db_;
  std::unordered_map<const char*, std::unique_ptr<Query::Cached>> statements_;
};

}  // namespace amk::sql
