#include "server/protocol/session.h"

#include "core/base/parse_json.h"

namespace amk::mcp {
namespace {

// Replies of one batch (2025-03-26), sent as one array once the last of its requests is finished: every Call holds a
// reference, and the last one to go sends. Notifications pass through at once.
class BatchOutlet final : public Outlet {
 public:
  explicit BatchOutlet(std::shared_ptr<Outlet> out) : out_(std::move(out)) {}
  ~BatchOutlet() override {
    if (!replies_.empty())
      out_->send(replies_);
    else
      out_->dropped();
  }
  void send(const Json& message) override {
    if (message.contains("method")) {
      out_->send(message);
      return;
    }
    std::lock_guard lock(mutex_);
    replies_.push_back(message);
  }

 private:
  const std::shared_ptr<Outlet> out_;
  std::mutex mutex_;
  Json replies_ = Json::array();
};

bool has_modern_meta(const Message& m) {
  const auto meta = m.params.find("_meta");
  return meta != m.params.end() && meta->is_object() && meta->contains(kMetaProtocolVersion);
}

bool is_token(const Json& v) { return v.is_number() || (v.is_string() && v.get_ref<const std::string&>().size() <= kMaxIdBytes); }

}  // namespace

SessionImpl::SessionImpl(std::shared_ptr<Server::Impl> server, std::shared_ptr<Outlet> outlet)
    : server_(std::move(server)), outlet_(std::move(outlet)) {}

SessionImpl::~SessionImpl() {
  std::lock_guard lock(server_->sessions_mutex);
  server_->sessions.erase(this);
}

void SessionImpl::receive(std::string_view text, std::shared_ptr<Outlet> outlet) {
  auto message = parse_json(text, "message", {.max_bytes = server_->options.max_message_bytes});
  if (!message) {
    (outlet ? outlet : outlet_)->send(make_error(nullptr, {RpcCode::ParseError, message.error().message, nullptr}));
    return;
  }
  receive(*std::move(message), std::move(outlet));
}

void SessionImpl::receive(Json message, std::shared_ptr<Outlet> outlet) {
  if (!outlet) outlet = outlet_;
  if (!message.is_array()) {
    handle(classify(std::move(message)), outlet);
    return;
  }
  if (!Revision{protocol_version()}.batches()) {
    outlet->send(make_error(nullptr, {RpcCode::InvalidRequest, "batches are part of revision 2025-03-26 only; send one message a line", nullptr}));
    return;
  }
  if (message.empty()) {
    outlet->send(make_error(nullptr, {RpcCode::InvalidRequest, "a batch holds at least one message", nullptr}));
    return;
  }
  // Their replies wait for each other in memory, and nobody else is served until all of them are begun.
  const auto most = static_cast<std::size_t>(server_->options.max_requests_per_session);
  if (message.size() > most) {
    outlet->send(make_error(
        nullptr,
        {RpcCode::InvalidRequest, "a batch of " + std::to_string(message.size()) + " messages; accepted: at most " + std::to_string(most), nullptr}));
    return;
  }
  const auto batch = std::make_shared<BatchOutlet>(outlet);
  for (Json& entry : message) {
    Message m = classify(std::move(entry));
    if (m.method == "initialize")
      batch->send(make_error(m.id, {RpcCode::InvalidRequest, "initialize must not be part of a batch", nullptr}));
    else
      handle(std::move(m), batch);
  }
}

void SessionImpl::refuse(const Error& error) { outlet_->send(make_error(nullptr, {RpcCode::ParseError, error.message, error.data})); }

void SessionImpl::handle(Message message, const std::shared_ptr<Outlet>& outlet) {
  switch (message.kind) {
    case MessageKind::Request:
      return handle_request(std::move(message), outlet);
    case MessageKind::Notification:
      return handle_notification(message);
    case MessageKind::Response:
      return handle_response(std::move(message));
    case MessageKind::Invalid:
      outlet->send(make_error(message.id, {RpcCode::InvalidRequest, message.problem, nullptr}));
  }
}

tl::expected<CallInfo, RpcError> SessionImpl::describe(const Message& m) const {
  CallInfo info;
  const auto meta = m.params.find("_meta");
  if (meta != m.params.end() && !meta->is_object()) return rpc_fail(RpcCode::InvalidParams, "params._meta must be an object");
  if (meta != m.params.end())
    if (const auto token = meta->find("progressToken"); token != meta->end() && !token->is_null()) {
      if (!is_token(*token)) return rpc_fail(RpcCode::InvalidParams, "params._meta.progressToken must be a number or a string of at most 1024 bytes");
      info.progress_token = *token;
    }
  if (has_modern_meta(m) || m.method == "server/discover") {
    auto modern = describe_modern(m, meta == m.params.end() ? Json::object() : *meta);
    if (modern) modern->progress_token = info.progress_token;
    return modern;
  }
  std::lock_guard lock(mutex_);
  if (version_.empty() && m.method != "initialize" && m.method != "ping")
    return rpc_fail(RpcCode::InvalidParams,
                    "neither was the connection initialized nor does params._meta carry " + std::string(kMetaProtocolVersion) +
                        ": send initialize first, or the protocol version with every request",
                    {{"supported", all_versions()}});
  if (!version_.empty()) info.revision.version = version_;
  info.log_level = log_level_;
  info.client_capabilities = client_capabilities_;
  info.client_name = client_name_;
  return info;
}

tl::expected<CallInfo, RpcError> SessionImpl::describe_modern(const Message& m, const Json& meta) const {
  CallInfo info;
  const auto version = meta.find(kMetaProtocolVersion);
  if (version == meta.end() || !version->is_string())
    return rpc_fail(RpcCode::InvalidParams, "params._meta[\"" + std::string(kMetaProtocolVersion) + "\"] must be a protocol version, e.g. \"" +
                                                std::string(kModernVersion) + "\"");
  if (*version != kModernVersion)
    return rpc_fail(RpcCode::UnsupportedProtocolVersion, "unsupported protocol version " + version->get<std::string>(),
                    {{"supported", all_versions()}, {"requested", *version}});
  info.revision.version = kModernVersion;
  const auto caps = meta.find(kMetaClientCapabilities);
  if (caps == meta.end() || !caps->is_object())
    return rpc_fail(RpcCode::InvalidParams, "params._meta[\"" + std::string(kMetaClientCapabilities) + "\"] must be an object ({} for none)");
  info.client_capabilities = *caps;
  if (const auto client = meta.find(kMetaClientInfo); client != meta.end()) {
    if (!client->is_object()) return rpc_fail(RpcCode::InvalidParams, "params._meta[\"" + std::string(kMetaClientInfo) + "\"] must be an object");
    if (const auto name = client->find("name"); name != client->end() && name->is_string()) info.client_name = *name;
  }
  if (const auto level = meta.find(kMetaLogLevel); level != meta.end()) {
    info.log_level = level->is_string() ? log_level_of(level->get<std::string>()) : std::nullopt;
    if (!info.log_level)
      return rpc_fail(RpcCode::InvalidParams, "params._meta[\"" + std::string(kMetaLogLevel) + "\"] must be a log level, debug … emergency");
  }
  if (const auto answers = m.params.find("inputResponses"); answers != m.params.end()) {
    if (!answers->is_object()) return rpc_fail(RpcCode::InvalidParams, "params.inputResponses must be an object");
    info.input_responses = *answers;
  }
  if (const auto state = m.params.find("requestState"); state != m.params.end()) {
    if (!state->is_string()) return rpc_fail(RpcCode::InvalidParams, "params.requestState must be a string");
    info.request_state = *state;
  }
  return info;
}

void SessionImpl::handle_request(Message m, const std::shared_ptr<Outlet>& outlet) {
  auto described = describe(m);
  if (!described) {
    outlet->send(make_error(m.id, described.error()));
    return;
  }
  CallInfo info = *std::move(described);
  info.id = m.id;
  info.method = m.method;
  info.reply_budget_bytes = server_->definition.reply_budget_bytes;
  {
    std::lock_guard lock(mutex_);
    info.working_directory = working_directory_;
  }
  const bool modern = info.revision.modern();

  // Quick methods are answered where the message was read; the rest may wait for disks and devices.
  auto answer = [&](const MethodResult& result) {
    outlet->send(result ? make_result(info.id, decorate(info, *result)) : make_error(info.id, result.error()));
  };
  const std::string& method = m.method;
  if (method == "initialize" && !modern) return answer(initialize(m.params));
  if (method == "server/discover") return answer(discover());
  if (method == "ping" && !modern) return answer(Json::object());
  if (method == "tools/list") return answer(list_tools(*server_, info.revision, m.params));
  if (method == "resources/templates/list") return answer(list_resource_templates(*server_, info.revision, m.params));
  if (method == "prompts/list") return answer(list_prompts(*server_, info.revision, m.params));
  if (method == "logging/setLevel" && !modern) return answer(set_level(m.params));
  if (method == "resources/subscribe" && !modern) return answer(subscribe(m.params, true));
  if (method == "resources/unsubscribe" && !modern) return answer(subscribe(m.params, false));
  if (method == "subscriptions/listen" && modern) return listen(info, m.params, outlet);
  if (method == "tools/call" || method == "resources/list" || method == "resources/read" || method == "prompts/get" ||
      method == "completion/complete")
    return start(std::make_shared<Call>(std::move(info), outlet, *this), std::move(m.params));
  answer(rpc_fail(RpcCode::MethodNotFound, "unknown method " + method + (modern ? " in revision " + info.revision.version : std::string())));
}

void SessionImpl::handle_notification(const Message& m) {
  if (m.method != "notifications/cancelled") return;  // notifications/initialized and all others need nothing from us
  const auto id = m.params.find("requestId");
  if (id == m.params.end()) return;
  std::shared_ptr<Call> call;
  {
    std::lock_guard lock(mutex_);
    listeners_.erase(id->dump());
    if (const auto it = calls_.find(id->dump()); it != calls_.end()) call = it->second;
  }
  if (call) call->cancel();
}

void SessionImpl::handle_response(Message m) {
  std::lock_guard lock(mutex_);
  const auto it = requests_.find(m.id.dump());
  if (it == requests_.end()) return;
  it->second->result = std::move(m.result);
  it->second->error = std::move(m.error);
  it->second->done = true;
  response_arrived_.notify_all();
}

Result<Json> SessionImpl::request(Outlet& outlet, const std::string& method, const Json& params, std::stop_token stop) {
  PendingRequest pending;
  std::unique_lock lock(mutex_);
  if (closed_) return fail(ErrorKind::Cancelled, "the client went away");
  // A prefix keeps our ids apart from the client's own: intermediaries track both in one table.
  const Json id = "amk-" + std::to_string(next_request_++);
  requests_[id.dump()] = &pending;
  lock.unlock();
  outlet.send(make_request(id, method, params));
  std::stop_callback wake(stop, [this] {
    std::lock_guard wake_lock(mutex_);
    response_arrived_.notify_all();
  });
  lock.lock();
  response_arrived_.wait(lock, [&] { return pending.done || closed_ || stop.stop_requested(); });
  requests_.erase(id.dump());
  lock.unlock();
  if (!pending.done) return fail(ErrorKind::Cancelled, "the request ended before the client answered " + method);
  if (!pending.error.is_null()) return fail(ErrorKind::Unavailable, "the client answered " + method + " with an error", {{"error", pending.error}});
  return std::move(pending.result);
}

void SessionImpl::set_working_directory(std::string path) {
  std::lock_guard lock(mutex_);
  working_directory_ = std::move(path);
}

void SessionImpl::close() {
  std::map<std::string, std::shared_ptr<Call>> calls;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    listeners_.clear();
    subscriptions_.clear();
    calls = calls_;
    response_arrived_.notify_all();
  }
  for (const auto& [id, call] : calls) call->drop();
}

void SessionImpl::cancel(const Outlet* outlet) {
  std::vector<std::shared_ptr<Call>> calls;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(listeners_, [&](const auto& entry) { return entry.second.outlet.get() == outlet; });
    for (const auto& [id, call] : calls_)
      if (call->outlet() == outlet) calls.push_back(call);
  }
  for (const auto& call : calls) call->drop();
}

int SessionImpl::requests_in_flight() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(calls_.size());
}

bool SessionImpl::initialized() const { return !protocol_version().empty(); }

std::string SessionImpl::protocol_version() const {
  std::lock_guard lock(mutex_);
  return version_;
}

}  // namespace amk::mcp
