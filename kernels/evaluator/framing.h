// Messages between a worker and its parent over a pair of pipes: "amk1 <json bytes> <payload bytes>\n", the JSON text (an object), the payload.
// Bounded in size; memory is taken as bytes arrive, not as they are announced; every read and write has a deadline. One thread a direction.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "core/base/error.h"

namespace amk {

struct Message {
  Json body;
  std::string payload;
};

using Deadline = std::chrono::steady_clock::time_point;
constexpr std::int64_t kMostJsonBytes = std::int64_t{16} << 20;  // what parse_json takes
constexpr std::int64_t kMostPayloadBytes = std::int64_t{1} << 31;

// Timeout past the deadline; Unavailable when the other end is gone; Corrupt when what came is no message.
Status write_message(int fd, const Message& message, Deadline deadline);
Result<Message> read_message(int fd, Deadline deadline);

}  // namespace amk
