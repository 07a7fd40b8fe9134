// One request in flight: the RequestContext that its handler sees, and the one place that decides what is still sent for it.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/protocol/json_rpc.h"
#include "server/protocol/request_context.h"
#include "server/protocol/revisions.h"
#include "server/protocol/server.h"

namespace amk::mcp {

// Sends a request to the peer and waits for its response; provided by the session (revisions with requests from the server).
class PeerRequests {
 public:
  virtual ~PeerRequests() = default;
  virtual Result<Json> request(Outlet& outlet, const std::string& method, const Json& params, std::stop_token stop) = 0;
};

// What the request said about itself and about its client.
struct CallInfo {
  Json id;
  std::string method;
  Revision revision;
  Json progress_token;  // null: progress is not wanted
  std::optional<LogLevel> log_level;
  Json client_capabilities = Json::object();
  std::string client_name;
  std::string working_directory;
  Json input_responses = Json::object();  // modern
  std::string request_state;              // modern
  std::size_t reply_budget_bytes = 8192;
};

// Thread-safe. Exactly one of reply(), fail() and drop() takes effect; nothing is sent after it.
class Call final : public RequestContext {
 public:
  Call(CallInfo info, std::shared_ptr<Outlet> outlet, PeerRequests& peer);

  const CallInfo& info() const { return info_; }
  const Outlet* outlet() const { return outlet_.get(); }

  void reply(Json result);
  void fail(const RpcError& error);
  bool drop();          // no reply; false: there was one already
  void cancel();        // by the client: its outlet hears of it
  void request_stop();  // also what cancellation does
  bool open() const;

  // Progress without news, so that the client knows that we live; sent only if nothing was for `quiet`.
  void heartbeat(std::chrono::steady_clock::duration quiet);

  // Questions that the handler asked and that the client has to answer in another round (modern).
  Json pending_questions() const;
  std::string outgoing_state() const;
  // Capabilities that a question needs and the client lacks, as {"elicitation": {}}; empty object: none.
  Json missing_capabilities() const;

  std::stop_token stop_token() const override { return stop_.get_token(); }
  void progress(double done, double total, std::string_view message) override;
  bool wants_progress() const override { return !info_.progress_token.is_null(); }
  void log(LogLevel level, std::string_view logger, const Json& data) override;
  Result<Json> ask_client(const std::string& key, const std::string& method, const Json& params) override;
  std::string request_state() const override { return info_.request_state; }
  void set_request_state(std::string state) override;
  void refuse_request(std::string why) override;
  std::string refusal() const;
  std::size_t reply_budget_bytes() const override { return info_.reply_budget_bytes; }
  bool client_supports(std::string_view capability) const override { return info_.client_capabilities.contains(std::string(capability)); }
  void release_stream() override { outlet_->release(); }
  std::string working_directory() const override { return info_.working_directory; }
  std::string client_name() const override { return info_.client_name; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  void finish(const Json& message);
  void send_progress(double done, double total, std::string_view message, Time now);  // under mutex_

  const CallInfo info_;
  const std::shared_ptr<Outlet> outlet_;
  PeerRequests& peer_;
  std::stop_source stop_;
  const Time started_ = std::chrono::steady_clock::now();

  mutable std::mutex mutex_;
  bool open_ = true;
  std::optional<double> last_done_;  // as sent
  double last_total_ = -1;
  Time last_sent_ = started_;
  Json questions_ = Json::object();
  Json missing_ = Json::object();
  std::string outgoing_state_, refusal_;
};

}  // namespace amk::mcp
