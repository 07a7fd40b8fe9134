// Expected failures. A function that can fail for reasons outside this program returns Result<T>;
// asserts are for our own mistakes only. Value types; no shared state, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "core/base/json.h"

namespace amk {

// What went wrong, coarsely: decides the exit code and how a client should react.
enum class ErrorKind {
  InvalidArgument,  // the caller's input is wrong; data names field, value and what is accepted
  NotFound,         // a named thing does not exist
  Unsupported,      // well-formed, but outside what this build supports
  Corrupt,          // a file or a stored record is damaged
  Rejected,         // the validator or a device limit rejects a schedule; data carries a witness
  Conflict,         // lost a race, stale lease, idempotency key reused with other content
  Unavailable,      // the machinery is missing or busy: no GPU, no daemon, disk full
  Timeout,
  Cancelled,
  Io,        // an operating-system call failed; message names call, code and path
  Internal,  // our own mistake
};

std::string_view to_string(ErrorKind kind);

struct Error {
  ErrorKind kind = ErrorKind::Internal;
  std::string message;         // for people: one sentence, says what would be accepted
  Json data = Json::object();  // for machines: e.g. {"field": "...", "value": ..., "accepted": ...}
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> fail(ErrorKind kind, std::string message, Json data = Json::object()) {
  return tl::unexpected<Error>(Error{kind, std::move(message), std::move(data)});
}

// The form every bad input takes: names the field, shows the value, says what is accepted.
tl::unexpected<Error> bad_field(std::string_view field, const Json& value, std::string_view accepted);

// {"error": {"kind", "message", "data"}}: the one shape in which errors leave the program.
Json to_json(const Error& error);

}  // namespace amk

// Propagates the error of a Result-returning expression, else binds its value.
#define AMK_CONCAT_INNER(a, b) a##b
#define AMK_CONCAT(a, b) AMK_CONCAT_INNER(a, b)
#define AMK_TRY(var, expr) AMK_TRY_IMPL(AMK_CONCAT(amk_try_, __LINE__), var, expr)
#define AMK_TRY_IMPL(tmp, var, expr)                                     \
  auto tmp = (expr);                                                     \
  if (!tmp) return tl::unexpected<::amk::Error>(std::move(tmp).error()); \
  auto var = std::move(*tmp)
#define AMK_CHECK(expr)                                                                  \
  do {                                                                                   \
    auto amk_status = (expr);                                                            \
    if (!amk_status) return tl::unexpected<::amk::Error>(std::move(amk_status).error()); \
  } while (0)
