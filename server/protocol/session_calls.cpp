// Requests that run on the pool: start, watch, finish.
#include <optional>

#include "core/base/number_text.h"
#include "core/base/unexpected.h"
#include "server/protocol/session.h"

namespace amk::mcp {

void SessionImpl::start(std::shared_ptr<Call> call, Json params) {
  const std::string key = call->info().id.dump();
  std::optional<RpcError> problem;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    if (calls_.contains(key) || listeners_.contains(key))
      problem = RpcError{RpcCode::InvalidRequest, "id " + key + " belongs to a request that is not answered yet", nullptr};
    else if (static_cast<int>(calls_.size()) >= server_->options.max_requests_per_session)
      problem = unavailable(std::to_string(calls_.size()) + " requests are in flight, which is the limit; wait for some to be answered");
    else
      calls_[key] = call;
  }
  if (problem) return call->fail(*problem);  // through the call's own gate, though it was never registered: one reply
  watch(call);
  const bool accepted = server_->executor.submit([self = shared_from_this(), this, call, params = std::move(params)] { run(call, params); });
  if (!accepted) {
    forget(*call);
    call->fail(unavailable("the server is shutting down, or has no memory for a thread; ask again"));
  }
}

void SessionImpl::run(const std::shared_ptr<Call>& call, const Json& params) {
  if (!call->open()) return forget(*call);  // cancelled while it waited for a thread
  const std::string& method = call->info().method;
  const Revision& revision = call->info().revision;
  try {
    if (method == "tools/call") return finish(*call, call_tool(*server_, params, *call));
    if (method == "resources/read") return finish(*call, read_resource(*server_, params, *call));
    if (method == "resources/list") return finish(*call, list_resources(*server_, revision, params));
    if (method == "prompts/get") return finish(*call, get_prompt(*server_, params, *call));
    finish(*call, complete(*server_, params, revision));
  } catch (const std::exception& e) {  // out of memory, or JSON that a handler built wrongly
    const Error why = unexpected_failure(method, e).value();
    server_->log("error", why.message);
    forget(*call);
    call->fail({RpcCode::InternalError, why.message, {{"kind", to_string(why.kind)}}});
  }
}

void SessionImpl::finish(Call& call, MethodResult result) {
  const CallInfo& info = call.info();
  forget(call);  // before the reply: the client may use the id again as soon as it has it
  if (std::string why = call.refusal(); !why.empty()) return call.fail({RpcCode::InvalidParams, std::move(why), nullptr});
  if (const Json missing = call.missing_capabilities(); !missing.empty() && info.revision.modern())
    return call.fail(
        {RpcCode::MissingClientCapability, "this request needs capabilities that the client did not declare", {{"requiredCapabilities", missing}}});
  const Json questions = call.pending_questions();
  const std::string state = call.outgoing_state();
  if (info.revision.modern() && (!questions.empty() || !state.empty())) {
    Json interim = Json::object();
    if (!questions.empty()) interim["inputRequests"] = questions;
    if (!state.empty()) interim["requestState"] = state;
    interim["resultType"] = "input_required";
    return call.reply(decorate(info, std::move(interim)));
  }
  if (!result) return call.fail(result.error());
  call.reply(decorate(info, *std::move(result)));
}

void SessionImpl::forget(const Call& call) {
  std::lock_guard lock(mutex_);
  const auto it = calls_.find(call.info().id.dump());
  if (it != calls_.end() && it->second.get() == &call) calls_.erase(it);
}

void SessionImpl::watch(const std::shared_ptr<Call>& call) {
  using std::chrono::duration;
  using std::chrono::duration_cast;
  using Duration = std::chrono::steady_clock::duration;
  const auto now = std::chrono::steady_clock::now();
  const double heartbeat_s = server_->definition.heartbeat_s, deadline_s = server_->definition.call_deadline_s;
  if (call->info().method != "tools/call") return;
  if (call->wants_progress() && heartbeat_s > 0) {
    // Looks more often than it speaks: what the handler reports itself puts the next heartbeat off.
    const Duration quiet = duration_cast<Duration>(duration<double>(heartbeat_s));
    struct Beat {
      static void schedule(const std::shared_ptr<Server::Impl>& server, const std::weak_ptr<Call>& weak, Duration quiet) {
        // The timer belongs to the server: a weak reference, or the two would keep each other alive.
        server->timer.at(std::chrono::steady_clock::now() + quiet / 4, [weak_server = std::weak_ptr(server), weak, quiet] {
          const auto alive = weak.lock();
          const auto owner = weak_server.lock();
          if (!alive || !owner || !alive->open()) return;
          alive->heartbeat(quiet);
          schedule(owner, weak, quiet);
        });
      }
    };
    Beat::schedule(server_, call, quiet);
  }
  if (deadline_s > 0)
    server_->timer.at(now + duration_cast<Duration>(duration<double>(deadline_s)), [weak = std::weak_ptr(call), deadline_s] {
      const auto alive = weak.lock();
      if (!alive) return;
      alive->fail({RpcCode::InternalError,
                   "the call did not end within " + with_digits(deadline_s, 6) + " s and was stopped",
                   {{"kind", to_string(ErrorKind::Timeout)}}});
      alive->request_stop();
    });
}

Json SessionImpl::decorate(const CallInfo& info, Json result) const {
  if (!info.revision.modern()) return result;
  const std::string& method = info.method;
  if (!result.contains("resultType")) result["resultType"] = "complete";
  result["_meta"][kMetaServerInfo] = server_info(*server_, info.revision);
  if (result["resultType"] != "complete") return result;
  // "Servers MUST include caching hints on results … returned by" these (2026-07-28 server/utilities/caching).
  const bool list = method == "tools/list" || method == "prompts/list" || method == "resources/templates/list" || method == "server/discover";
  if (list) {
    result["ttlMs"] = server_->definition.list_ttl_ms;
    result["cacheScope"] = "public";
  } else if (method == "resources/list") {
    result["ttlMs"] = server_->definition.list_resources ? 0 : server_->definition.list_ttl_ms;
    result["cacheScope"] = "private";
  } else if (method == "resources/read") {
    result["cacheScope"] = "private";
  }
  return result;
}

}  // namespace amk::mcp
