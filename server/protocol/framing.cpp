#include "server/protocol/framing.h"

#include <algorithm>

namespace amk::mcp {

void LineFramer::feed(std::string_view bytes) {
  if (skipping_) {
    // Drop without storing until the line break.
    const std::size_t end = bytes.find('\n');
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end);  // keeps the line break: next() reports the error there
  }
  compact();
  buffer_.append(bytes);
}

void LineFramer::compact() {
  // Amortised: moves at most as many bytes as were consumed.
  if (start_ > 0 && start_ >= buffer_.size() / 2) {
    buffer_.erase(0, start_);
    scanned_ -= std::min(scanned_, start_);
    start_ = 0;
  }
}

Result<std::string> LineFramer::too_long() {
  return fail(ErrorKind::InvalidArgument, "message longer than " + std::to_string(max_line_bytes_) + " bytes; it was dropped",
              {{"field", "message"}, {"accepted", "at most " + std::to_string(max_line_bytes_) + " bytes"}});
}

std::optional<Result<std::string>> LineFramer::next() {
  for (;;) {
    const std::size_t end = buffer_.find('\n', std::max(scanned_, start_));
    if (end == std::string::npos) {
      scanned_ = buffer_.size();
      // A carriage return at the end may belong to the line break, of which the other half has not arrived: it does not count.
      if (buffered_bytes() > max_line_bytes_ + (buffer_.ends_with('\r') ? 1 : 0)) {
        skipping_ = true;
        buffer_.clear();
        start_ = scanned_ = 0;
      }
      return std::nullopt;
    }
    std::string_view line(buffer_.data() + start_, end - start_);
    start_ = scanned_ = end + 1;
    if (skipping_) {
      skipping_ = false;
      return too_long();
    }
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.size() > max_line_bytes_) return too_long();
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    return std::string(line);
  }
}

std::optional<Result<std::string>> LineFramer::finish() {
  if (auto line = next()) return line;
  if (skipping_) {
    skipping_ = false;
    return too_long();
  }
  std::string rest = buffer_.substr(start_);
  buffer_.clear();
  start_ = scanned_ = 0;
  if (!rest.empty() && rest.back() == '\r') rest.pop_back();
  if (rest.find_first_not_of(" \t") == std::string::npos) return std::nullopt;
  return rest;
}

}  // namespace amk::mcp
