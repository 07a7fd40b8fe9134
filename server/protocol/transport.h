// A bidirectional stream of messages: one JSON text each, without line breaks (newline-delimited on byte streams).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace amk::mcp {

// send() may be called from any thread and never interleaves messages; receive() from one thread at a time; close() from any.
class Transport {
 public:
  virtual ~Transport() = default;

  // False once the peer is gone.
  virtual bool send(std::string_view message) = 0;

  // The next message; nullopt at the end of the stream. An error (a message over the size limit, read failure) is not final
  // unless the next call says nullopt: the over-long message is skipped.
  virtual Result<std::optional<std::string>> receive() = 0;

  // Ends the stream: receive() in another thread returns nullopt, send() returns false.
  virtual void close() = 0;
};

// Two ends of one in-memory stream.
std::pair<std::unique_ptr<Transport>, std::unique_ptr<Transport>> memory_transport_pair();

// Newline-delimited messages over descriptors (a socket may be both); owns and closes them. `max_message_bytes` bounds receive().
std::unique_ptr<Transport> fd_transport(int read_fd, int write_fd, std::size_t max_message_bytes = 16u << 20);

}  // namespace amk::mcp
