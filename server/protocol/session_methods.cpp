// Methods about the connection itself: handshake, discovery, logging level, subscriptions.
#include "server/protocol/session.h"

namespace amk::mcp {
namespace {

constexpr std::size_t kMaxSubscriptions = 256;  // of a connection, or of a stream

}  // namespace

MethodResult SessionImpl::initialize(const Json& params) {
  const auto version = params.find("protocolVersion");
  if (version == params.end() || !version->is_string())
    return rpc_fail(RpcCode::InvalidParams, "params.protocolVersion must be a protocol version, e.g. \"" + std::string(kNewestLegacyVersion) + "\"",
                    {{"supported", all_versions()}});
  const auto caps = params.find("capabilities");
  if (caps != params.end() && !caps->is_object()) return rpc_fail(RpcCode::InvalidParams, "params.capabilities must be an object");
  const auto client = params.find("clientInfo");
  if (client != params.end() && !client->is_object()) return rpc_fail(RpcCode::InvalidParams, "params.clientInfo must be an object");

  Revision revision{negotiate(version->get<std::string>())};
  {
    std::lock_guard lock(mutex_);
    version_ = revision.version;
    client_capabilities_ = caps == params.end() ? Json::object() : *caps;
    client_name_.clear();
    if (client != params.end())
      if (const auto name = client->find("name"); name != client->end() && name->is_string()) client_name_ = *name;
  }
  Json result = {
      {"protocolVersion", revision.version}, {"capabilities", capabilities(*server_, revision)}, {"serverInfo", server_info(*server_, revision)}};
  if (!server_->definition.instructions.empty()) result["instructions"] = server_->definition.instructions;
  return result;
}

MethodResult SessionImpl::discover() const {
  const Revision revision{std::string(kModernVersion)};
  Json result = {{"supportedVersions", all_versions()}, {"capabilities", capabilities(*server_, revision)}};
  if (!server_->definition.instructions.empty()) result["instructions"] = server_->definition.instructions;
  return result;
}

MethodResult SessionImpl::set_level(const Json& params) {
  const auto level = params.find("level");
  const auto parsed = level != params.end() && level->is_string() ? log_level_of(level->get<std::string>()) : std::nullopt;
  if (!parsed) return rpc_fail(RpcCode::InvalidParams, "params.level must be one of debug, info, notice, warning, error, critical, alert, emergency");
  std::lock_guard lock(mutex_);
  log_level_ = *parsed;
  return Json::object();
}

MethodResult SessionImpl::subscribe(const Json& params, bool on) {
  const auto uri = params.find("uri");
  if (uri == params.end() || !uri->is_string()) return rpc_fail(RpcCode::InvalidParams, "params.uri must be a string");
  if (on && !find_resource(*server_, uri->get<std::string>()))
    return rpc_fail(RpcCode::ResourceNotFoundLegacy, "no resource " + uri->get<std::string>(), {{"uri", *uri}});
  std::lock_guard lock(mutex_);
  if (on && subscriptions_.size() >= kMaxSubscriptions)
    return tl::unexpected<RpcError>(unavailable("256 subscriptions are the limit of one connection"));
  if (on)
    subscriptions_.insert(uri->get<std::string>());
  else
    subscriptions_.erase(uri->get<std::string>());
  return Json::object();
}

void SessionImpl::listen(const CallInfo& info, const Json& params, const std::shared_ptr<Outlet>& outlet) {
  const auto filter = params.find("notifications");
  auto answer = [&](const RpcError& why) { outlet->send(make_error(info.id, why)); };
  auto refuse_with = [&](RpcCode code, const std::string& why) { answer({code, why, nullptr}); };
  if (filter == params.end() || !filter->is_object())
    return refuse_with(RpcCode::InvalidParams, "params.notifications must be an object that names the wanted notifications");
  Listener listener{outlet, info.id, {}, {}};
  // What is not declared is not promised: lists that never change, resources that are not known.
  Json honoured = Json::object();
  const ServerDefinition& d = server_->definition;
  for (const auto& [list, changes] : {std::pair{"tools", d.tools_change}, {"resources", d.resources_change}, {"prompts", d.prompts_change}})
    if (const std::string field = std::string(list) + "ListChanged"; changes && filter->value(field, Json()) == true) {
      honoured[field] = true;
      listener.lists.insert(list);
    }
  if (const auto uris = filter->find("resourceSubscriptions"); uris != filter->end()) {
    if (!uris->is_array() || uris->size() > kMaxSubscriptions)
      return refuse_with(RpcCode::InvalidParams, "params.notifications.resourceSubscriptions must be a list of at most 256 URIs");
    honoured["resourceSubscriptions"] = Json::array();
    for (const Json& uri : *uris) {
      if (!uri.is_string()) return refuse_with(RpcCode::InvalidParams, "params.notifications.resourceSubscriptions must be a list of URIs");
      if (!find_resource(*server_, uri.get<std::string>())) continue;
      if (listener.uris.insert(uri.get<std::string>()).second) honoured["resourceSubscriptions"].push_back(uri);
    }
  }
  std::lock_guard lock(mutex_);
  if (closed_) return;
  const std::string key = info.id.dump();
  if (calls_.contains(key) || listeners_.contains(key))
    return refuse_with(RpcCode::InvalidRequest, "id " + key + " belongs to a request that is not answered yet");
  if (listeners_.size() >= static_cast<std::size_t>(server_->options.max_requests_per_session))
    return answer(unavailable("too many subscriptions on this connection"));
  // Under the lock, so that no update overtakes the acknowledgement.
  outlet->send(make_notification("notifications/subscriptions/acknowledged",
                                 {{"_meta", {{kMetaSubscriptionId, info.id}}}, {"notifications", std::move(honoured)}}));
  listeners_[key] = std::move(listener);
}

void SessionImpl::resource_updated(const std::string& uri) {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  if (subscriptions_.contains(uri)) outlet_->send(make_notification("notifications/resources/updated", {{"uri", uri}}));
  for (const auto& [key, l] : listeners_)
    if (l.uris.contains(uri))
      l.outlet->send(make_notification("notifications/resources/updated", {{"_meta", {{kMetaSubscriptionId, l.id}}}, {"uri", uri}}));
}

void SessionImpl::list_changed(const std::string& list) {
  const std::string method = "notifications/" + list + "/list_changed";
  std::lock_guard lock(mutex_);
  if (closed_) return;
  if (!version_.empty()) outlet_->send(make_notification(method, Json::object()));
  for (const auto& [key, l] : listeners_)
    if (l.lists.contains(list)) l.outlet->send(make_notification(method, {{"_meta", {{kMetaSubscriptionId, l.id}}}}));
}

void SessionImpl::end_subscriptions() {
  std::lock_guard lock(mutex_);
  for (const auto& [key, l] : listeners_) {
    Json result = {{"resultType", "complete"}, {"_meta", {{kMetaSubscriptionId, l.id}}}};
    result["_meta"][kMetaServerInfo] = server_info(*server_, Revision{std::string(kModernVersion)});
    l.outlet->send(make_result(l.id, std::move(result)));
  }
  listeners_.clear();
}

}  // namespace amk::mcp
