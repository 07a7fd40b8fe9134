// Newline-delimited messages out of a byte stream. Not thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace amk::mcp {

// Feed bytes, take lines. A trailing '\r' is dropped, empty lines are skipped. A line over the limit is discarded as it
// arrives (memory stays bounded) and reported once, at its place in the order, as InvalidArgument.
class LineFramer {
 public:
  explicit LineFramer(std::size_t max_line_bytes) : max_line_bytes_(max_line_bytes) {}

  void feed(std::string_view bytes);
  // The next complete line or error; nullopt when more bytes are needed.
  std::optional<Result<std::string>> next();
  // What is left at the end of the stream: a last line without a line break.
  std::optional<Result<std::string>> finish();

  std::size_t buffered_bytes() const { return buffer_.size() - start_; }

 private:
  Result<std::string> too_long();
  void compact();

  std::size_t max_line_bytes_;
  std::string buffer_;
  std::size_t start_ = 0;    // consumed before here
  std::size_t scanned_ = 0;  // no line break in [start_, scanned_)
  bool skipping_ = false;    // inside a line that is too long
};

}  // namespace amk::mcp
