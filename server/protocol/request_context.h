// What a handler may know of, and say to, the request that it serves. One object a call; valid until the handler returns.
#pragma once

#include <cstddef>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace amk::mcp {

enum class LogLevel { Debug, Info, Notice, Warning, Error, Critical, Alert, Emergency };
std::string_view to_string(LogLevel level);
std::optional<LogLevel> log_level_of(std::string_view name);

class RequestContext {
 public:
  virtual ~RequestContext() = default;

  // Stopped when the client cancels, goes away, or the deadline passes. Whatever the handler returns after that is dropped.
  virtual std::stop_token stop_token() const = 0;

  // Tells the client how far the call is; does nothing when the client did not ask. Any thread, any rate: what reaches the
  // client strictly increases, is thinned out, and never follows the reply. `total` < 0: not known.
  virtual void progress(double done, double total, std::string_view message) = 0;
  virtual bool wants_progress() const { return false; }

  // A log message for the client, if it listens at this level. `data` is any JSON value.
  virtual void log(LogLevel level, std::string_view logger, const Json& data) = 0;

  // Asks the client for input in the middle of a call: method is elicitation/create, sampling/createMessage or roots/list.
  // `key` names the question, unique within this call. The value is the client's result. An error must be returned by the handler
  // as it is: revisions without requests from the server end this call with it and run the handler again once the answer is there,
  // so that everything before the question must be repeatable.
  virtual Result<Json> ask_client(const std::string& key, const std::string& method, const Json& params) = 0;

  // Text that the client handed back from the previous round of the same call (2026-07-28), else empty; and the one to hand out
  // with the next question. Untrusted: the client may have changed it.
  virtual std::string request_state() const { return {}; }
  virtual void set_request_state(std::string) {}
  // The request itself is wrong (a state that was tampered with): the client gets a protocol error, the model nothing.
  virtual void refuse_request(std::string why) { (void)why; }

  // A structured result should stay under this; larger things are paged or linked.
  virtual std::size_t reply_budget_bytes() const { return 8192; }

  // Whether the client declared this capability ("sampling", "elicitation", "roots").
  virtual bool client_supports(std::string_view capability) const {
    (void)capability;
    return false;
  }

  // Where the transport can resume streams (HTTP up to 2025-11-25): ends the connection while the call goes on; the client comes back
  // for the rest. Does nothing elsewhere.
  virtual void release_stream() {}

  // Against which folder relative paths in arguments are meant: that of the client's process. Empty: unknown, use absolute paths.
  virtual std::string working_directory() const { return {}; }

  // Who calls, as it says itself: for display and logs only.
  virtual std::string client_name() const { return {}; }
};

// For calls without a peer (tests, in-process use): progress and logs go nowhere, questions are refused.
class NullContext : public RequestContext {
 public:
  explicit NullContext(std::stop_token stop = {}) : stop_(std::move(stop)) {}
  std::stop_token stop_token() const override { return stop_; }
  void progress(double, double, std::string_view) override {}
  void log(LogLevel, std::string_view, const Json&) override {}
  Result<Json> ask_client(const std::string& key, const std::string& method, const Json& params) override;

 private:
  std::stop_token stop_;
};

}  // namespace amk::mcp
