#include "server/daemon/shim_state.h"

#include <optional>

#include "core/base/parse_json.h"
#include "server/protocol/json_rpc.h"

namespace amk::daemon {
namespace {

constexpr std::string_view kOwnPrefix = "amk-shim-";
constexpr mcp::RpcCode kLost = mcp::RpcCode::InternalError;

// The id of a reply without parsing the rest: our daemon writes keys in order, so that a result starts with its id. nullopt:
// look properly.
std::optional<Json> leading_id(std::string_view line) {
  constexpr std::string_view kStart = "{\"id\":";
  if (!line.starts_with(kStart)) return std::nullopt;
  const std::string_view rest = line.substr(kStart.size());
  std::size_t end = 0;
  if (rest.starts_with('"')) {
    end = 1;
    while (end < rest.size() && rest[end] != '"') end += rest[end] == '\\' ? 2 : 1;
    ++end;
  } else {
    while (end < rest.size() && rest[end] != ',' && rest[end] != '}') ++end;
  }
  if (end > rest.size() || end > 1024) return std::nullopt;
  auto id = parse_json(rest.substr(0, end), "id");
  if (!id) return std::nullopt;
  return *std::move(id);
}

}  // namespace

void ShimState::note_request(const Json& message, std::string_view line) {
  if (!message.is_object()) return;
  const auto method = message.find("method");
  if (method == message.end() || !method->is_string()) return;
  const auto id = message.find("id");
  const std::string name = *method;
  if (id == message.end()) {
    if (name == "notifications/initialized") initialized_ = true;
    if (name == "notifications/cancelled")
      if (const auto params = message.find("params"); params != message.end() && params->is_object() && params->contains("requestId"))
        pending_.erase((*params)["requestId"].dump());  // a cancelled request gets no reply
    return;
  }
  if (!id->is_string() && !id->is_number_integer()) return;
  pending_[id->dump()] = name;
  if (name == "initialize") {
    initialize_ = line;
    initialized_ = false;
    set_level_.clear();
    subscribe_.clear();
  }
  if (name == "logging/setLevel") set_level_ = line;
  if (name == "resources/subscribe" || name == "resources/unsubscribe")
    if (const auto params = message.find("params"); params != message.end() && params->is_object() && params->contains("uri")) {
      const std::string uri = (*params)["uri"].dump();
      if (name == "resources/subscribe")
        subscribe_[uri] = line;
      else
        subscribe_.erase(uri);
    }
}

void ShimState::note_client(std::string_view line) {
  auto message = parse_json(line, "message");
  if (!message) return;  // the daemon will say so
  if (message->is_array())
    for (const Json& m : *message) note_request(m, line);
  else
    note_request(*message, line);
}

void ShimState::answered(const Json& id) { pending_.erase(id.dump()); }

bool ShimState::note_daemon(std::string_view line) {
  if (auto id = leading_id(line)) {
    if (id->is_string() && id->get_ref<const std::string&>().starts_with(kOwnPrefix)) return false;
    answered(*id);
    return true;
  }
  if (!line.starts_with("[") && !line.starts_with("{\"error\":")) return true;  // a notification
  auto message = parse_json(line, "reply");
  if (!message) return true;
  if (!message->is_array()) message = Json::array({*message});
  for (const Json& m : *message) {
    const auto id = m.find("id");
    if (id == m.end()) continue;
    if (id->is_string() && id->get_ref<const std::string&>().starts_with(kOwnPrefix)) return false;
    answered(*id);
  }
  return true;
}

bool ShimState::waiting() const {
  for (const auto& [id, method] : pending_)
    if (method != "subscriptions/listen") return true;
  return false;
}

std::vector<std::string> ShimState::fail_pending(const std::string& reason) {
  std::vector<std::string> replies;
  for (const auto& [id, method] : pending_)
    replies.push_back(canonical_dump(mcp::make_error(
        Json::parse(id), {kLost,
                          reason + "; " + method + " was not answered and may be repeated (a job goes on only if the daemon still runs)",
                          {{"kind", to_string(ErrorKind::Unavailable)}, {"retry", true}}})));
  pending_.clear();
  return replies;
}

std::vector<std::string> ShimState::handshake() {
  std::vector<std::string> lines;
  if (initialize_.empty()) return lines;
  auto own = [&](const std::string& line) {
    auto message = parse_json(line, "message");
    if (!message || !message->is_object()) return;
    (*message)["id"] = std::string(kOwnPrefix) + std::to_string(next_own_id_++);
    lines.push_back(canonical_dump(*message));
  };
  own(initialize_);
  if (initialized_) lines.push_back(R"({"jsonrpc":"2.0","method":"notifications/initialized"})");
  if (!set_level_.empty()) own(set_level_);
  for (const auto& [uri, line] : subscribe_) own(line);
  return lines;
}

}  // namespace amk::daemon
