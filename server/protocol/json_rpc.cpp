#include "server/protocol/json_rpc.h"

#include "core/base/text.h"

namespace amk::mcp {
namespace {

bool is_id(const Json& v) { return v.is_number_integer() || (v.is_string() && v.get_ref<const std::string&>().size() <= kMaxIdBytes); }

Message invalid(Message m, std::string problem) {
  m.kind = MessageKind::Invalid;
  m.problem = std::move(problem);
  return m;
}

// Errors name what was asked for. Who asks with a method, a name or an address of megabytes is told its beginning.
std::string bounded(const std::string& text, std::size_t most) {
  const std::string_view kept = cut_text(text, most);
  return kept.size() == text.size() ? text : std::string(kept) + "…";
}

Json bounded(const Json& data) {
  constexpr std::size_t kMostBytes = 1000;
  if (data.is_string()) return bounded(data.get_ref<const std::string&>(), kMostBytes);
  Json out = data;
  if (data.is_structured())
    for (Json& value : out) value = bounded(value);
  return out;
}

}  // namespace

RpcError unavailable(std::string message) { return {RpcCode::InternalError, std::move(message), {{"kind", to_string(ErrorKind::Unavailable)}}}; }

Message classify(Json message) {
  Message m;
  if (!message.is_object()) return invalid(std::move(m), "a message is a JSON object");
  const auto id = message.find("id");
  const bool has_id = id != message.end();
  if (has_id && is_id(*id)) m.id = *id;

  const auto version = message.find("jsonrpc");
  if (version == message.end() || *version != "2.0") return invalid(std::move(m), "jsonrpc must be \"2.0\"");

  const auto method = message.find("method");
  if (method == message.end()) {
    const auto result = message.find("result");
    const auto error = message.find("error");
    if ((result == message.end()) == (error == message.end()))
      return invalid(std::move(m), "a message has a method, or exactly one of result and error");
    m.kind = MessageKind::Response;
    if (result != message.end()) m.result = std::move(*result);
    if (error != message.end()) m.error = std::move(*error);
    return m;
  }
  if (!method->is_string()) return invalid(std::move(m), "method must be a string");
  m.method = method->get<std::string>();
  if (has_id && !is_id(*id)) return invalid(std::move(m), "id must be an integer or a string of at most 1024 bytes");
  if (const auto params = message.find("params"); params != message.end()) {
    if (!params->is_object()) return invalid(std::move(m), "params must be an object");
    m.params = std::move(*params);
  }
  m.kind = has_id ? MessageKind::Request : MessageKind::Notification;
  return m;
}

Json make_result(const Json& id, Json result) { return {{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}}; }

Json make_error(const Json& id, const RpcError& error) {
  constexpr std::size_t kMostBytes = 3000;  // lists of what is accepted are some hundred
  Json body = {{"code", static_cast<int>(error.code)}, {"message", bounded(error.message, kMostBytes)}};
  if (!error.data.is_null()) body["data"] = bounded(error.data);
  Json out = {{"jsonrpc", "2.0"}, {"error", std::move(body)}};
  if (!id.is_null()) out["id"] = id;
  return out;
}

Json make_notification(std::string_view method, Json params) { return {{"jsonrpc", "2.0"}, {"method", method}, {"params", std::move(params)}}; }

Json make_request(const Json& id, std::string_view method, Json params) {
  return {{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", std::move(params)}};
}

}  // namespace amk::mcp
