#include "server/protocol/call.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace amk::mcp {
namespace {

// Clients redraw on every notification; more than these a second help nobody and cost the model's host.
constexpr std::chrono::milliseconds kMinProgressInterval{20};

struct LevelName {
  LogLevel level;
  std::string_view name;
};
constexpr LevelName kLevels[] = {{LogLevel::Debug, "debug"},     {LogLevel::Info, "info"},          {LogLevel::Notice, "notice"},
                                 {LogLevel::Warning, "warning"}, {LogLevel::Error, "error"},        {LogLevel::Critical, "critical"},
                                 {LogLevel::Alert, "alert"},     {LogLevel::Emergency, "emergency"}};

// "elicitation/create" -> "elicitation", …: the client capability that a question needs.
std::string capability_of(const std::string& method) { return method.substr(0, method.find('/')); }

}  // namespace

std::string_view to_string(LogLevel level) {
  for (const LevelName& l : kLevels)
    if (l.level == level) return l.name;
  return "info";
}

std::optional<LogLevel> log_level_of(std::string_view name) {
  for (const LevelName& l : kLevels)
    if (l.name == name) return l.level;
  return std::nullopt;
}

Result<Json> NullContext::ask_client(const std::string& key, const std::string& method, const Json&) {
  return fail(ErrorKind::Unsupported, "this call has no client that could answer " + method + " (" + key + ")");
}

Call::Call(CallInfo info, std::shared_ptr<Outlet> outlet, PeerRequests& peer) : info_(std::move(info)), outlet_(std::move(outlet)), peer_(peer) {}

bool Call::open() const {
  std::lock_guard lock(mutex_);
  return open_;
}

void Call::finish(const Json& message) {
  std::lock_guard lock(mutex_);
  if (!open_) return;
  open_ = false;
  outlet_->send(message);
}

void Call::reply(Json result) { finish(make_result(info_.id, std::move(result))); }
void Call::fail(const RpcError& error) { finish(make_error(info_.id, error)); }

bool Call::drop() {
  bool was_open = false;
  {
    std::lock_guard lock(mutex_);
    was_open = std::exchange(open_, false);
  }
  request_stop();
  return was_open;
}

void Call::cancel() {
  if (drop()) outlet_->dropped();
}

void Call::request_stop() { stop_.request_stop(); }

void Call::send_progress(double done, double total, std::string_view message, Time now) {
  // The specification wants every value above the last one, also where the work itself repeats or resets its count.
  if (last_done_ && !(done > *last_done_)) {
    done = *last_done_ + std::max(1.0, std::abs(*last_done_)) * 1e-9;
    if (!(done > *last_done_)) return;
  }
  last_done_ = done;
  last_total_ = total;
  last_sent_ = now;
  Json params = {{"progressToken", info_.progress_token}, {"progress", done}};
  // Whole numbers as integers: some clients print them as they come.
  if (std::floor(done) == done && std::abs(done) < 1e15) params["progress"] = static_cast<std::int64_t>(done);
  if (total >= 0) {
    params["total"] = std::max(total, done);
    if (std::floor(total) == total && total >= done && total < 1e15) params["total"] = static_cast<std::int64_t>(total);
  }
  if (!message.empty() && info_.revision.progress_message()) params["message"] = message;
  outlet_->send(make_notification("notifications/progress", std::move(params)));
}

void Call::progress(double done, double total, std::string_view message) {
  if (!wants_progress() || !std::isfinite(done)) return;
  const Time now = std::chrono::steady_clock::now();
  std::lock_guard lock(mutex_);
  if (!open_) return;
  if (last_done_ && now - last_sent_ < kMinProgressInterval) return;
  send_progress(done, std::isfinite(total) ? total : -1, message, now);
}

void Call::heartbeat(std::chrono::steady_clock::duration quiet) {
  if (!wants_progress()) return;
  const Time now = std::chrono::steady_clock::now();
  std::lock_guard lock(mutex_);
  if (!open_ || now - last_sent_ < quiet) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - started_).count();
  send_progress(last_done_.value_or(0.0), last_total_, "still working, " + std::to_string(seconds) + " s", now);
}

void Call::log(LogLevel level, std::string_view logger, const Json& data) {
  if (!info_.log_level || level < *info_.log_level) return;
  Json params = {{"level", to_string(level)}, {"data", data}};
  if (!logger.empty()) params["logger"] = logger;
  std::lock_guard lock(mutex_);
  if (!open_) return;
  outlet_->send(make_notification("notifications/message", std::move(params)));
}

Result<Json> Call::ask_client(const std::string& key, const std::string& method, const Json& params) {
  const std::string capability = capability_of(method);
  if (!info_.client_capabilities.contains(capability)) {
    std::lock_guard lock(mutex_);
    missing_[capability] = Json::object();
    return amk::fail(ErrorKind::Unsupported, "the client did not declare the capability " + capability + ", which " + method + " needs",
                     {{"required_capability", capability}});
  }
  if (!info_.revision.modern()) {
    if (!open()) return amk::fail(ErrorKind::Cancelled, "the request was cancelled");
    return peer_.request(*outlet_, method, params, stop_token());
  }
  // An answer that is no object is none: it is asked for again.
  if (const auto answer = info_.input_responses.find(key); answer != info_.input_responses.end() && answer->is_object()) return *answer;
  std::lock_guard lock(mutex_);
  questions_[key] = {{"method", method}, {"params", params}};
  return amk::fail(ErrorKind::Unavailable, "the client has to answer " + method + " (" + key + ") first");
}

void Call::set_request_state(std::string state) {
  std::lock_guard lock(mutex_);
  outgoing_state_ = std::move(state);
}

void Call::refuse_request(std::string why) {
  std::lock_guard lock(mutex_);
  refusal_ = std::move(why);
}

std::string Call::refusal() const {
  std::lock_guard lock(mutex_);
  return refusal_;
}

Json Call::pending_questions() const {
  std::lock_guard lock(mutex_);
  return questions_;
}

std::string Call::outgoing_state() const {
  std::lock_guard lock(mutex_);
  return outgoing_state_;
}

Json Call::missing_capabilities() const {
  std::lock_guard lock(mutex_);
  return missing_;
}

}  // namespace amk::mcp
