// A client of the daemon, for the CLI: calls tools by name. One call at a time; cancel() from any thread.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "core/base/error.h"
#include "server/daemon/daemon.h"
#include "server/protocol/server.h"

namespace amk::daemon {

struct Progress {
  double done = 0;
  double total = -1;  // < 0: unknown
  std::string message;
};
using OnProgress = std::function<void(const Progress&)>;

class ToolClient {
 public:
  virtual ~ToolClient() = default;
  // The tool's structured result, or its error with the same kind, message and data as the handler returned.
  // `stop`: cancels the call (the daemon's jobs go on), Cancelled is returned.
  virtual Result<Json> call(const std::string& tool, const Json& args, const OnProgress& on_progress = {}, std::stop_token stop = {}) = 0;
  // Text of a resource.
  virtual Result<std::string> read_resource(const std::string& uri) = 0;
};

// Over the daemon's socket, connecting or starting it on first use; reconnects once when the daemon went away between calls.
std::unique_ptr<ToolClient> daemon_client(Paths paths, Launch launch);

// In this process, without a daemon (--no-daemon): the same definition, validation and results.
std::unique_ptr<ToolClient> in_process_client(std::shared_ptr<mcp::Server> server);

}  // namespace amk::daemon
