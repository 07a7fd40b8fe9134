// From what a pass of the validator found to a Rejection that a person can check by hand. Internal to core/program.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/program/validator.h"

namespace amk::validation {

using Verdict = std::optional<Rejection>;  // empty: nothing found

// The parts of a witness; what stays at its default is left out.
struct Finding {
  std::string_view rule;
  std::string message;
  TaskId task = kNone;   // the access, wait or queue entry at fault
  TaskId other = kNone;  // the task it is in conflict with
  BufferId buffer = kNone;
  BufferId other_buffer = kNone;
  std::int64_t begin = 0;  // bytes [begin, end) of `buffer`
  std::int64_t end = 0;
  std::int32_t pos_lo = 0;  // launch positions [pos_lo, pos_hi) at which it happens
  std::int32_t pos_hi = 0;
  CounterId counter = kNone;
  std::string missing;             // the edge that would make it right
  std::vector<std::string> chain;  // of a cycle: each entry waits for the next, the last for the first
};

Rejection reject(const Program& program, Finding finding);

// "a, b and 3" style joining without streams: every argument is a string or an integer.
inline std::string text_of(std::string_view s) { return std::string(s); }
inline std::string text_of(const std::string& s) { return s; }
inline std::string text_of(const char* s) { return s; }
template <class Integer>
std::string text_of(Integer value) {
  return std::to_string(value);
}
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (out.append(text_of(parts)), ...);
  return out;
}

}  // namespace amk::validation
