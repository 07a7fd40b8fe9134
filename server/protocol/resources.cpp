// resources/read, prompts/get, completion/complete.
#include <exception>

#include "core/base/parse_json.h"
#include "server/protocol/base64.h"
#include "server/protocol/server_impl.h"
#include "server/protocol/uri_template.h"

namespace amk::mcp {
namespace {

constexpr std::size_t kMaxCompletions = 100;  // the specification's own limit

MethodResult required_string(const Json& params, const char* name) {
  const auto it = params.find(name);
  if (it == params.end() || !it->is_string()) return rpc_fail(RpcCode::InvalidParams, std::string("params.") + name + " must be a string");
  return *it;
}

tl::unexpected<RpcError> handler_failed(const Error& error) {
  const bool callers_fault = error.kind == ErrorKind::InvalidArgument || error.kind == ErrorKind::NotFound;
  return rpc_fail(callers_fault ? RpcCode::InvalidParams : RpcCode::InternalError, error.message, error.data.empty() ? Json() : error.data);
}

tl::unexpected<RpcError> resource_not_found(const Revision& revision, const std::string& uri, const std::string& message) {
  return rpc_fail(revision.modern() ? RpcCode::InvalidParams : RpcCode::ResourceNotFoundLegacy, message, {{"uri", uri}});
}

}  // namespace

Result<FoundResource> find_resource(const Server::Impl& server, const std::string& uri) {
  FoundResource found;
  if (const auto it = server.resources.find(uri); it != server.resources.end()) {
    found.fixed = it->second;
    return found;
  }
  for (const ResourceTemplateSpec& t : server.definition.resource_templates)
    if (auto variables = match_uri_template(t.uri_template, uri)) {
      found.pattern = &t;
      found.variables = *std::move(variables);
      return found;
    }
  return fail(ErrorKind::NotFound, "no resource " + uri);
}

MethodResult read_resource(const Server::Impl& server, const Json& params, Call& call) {
  auto uri_or = required_string(params, "uri");
  if (!uri_or) return uri_or;
  const std::string uri = uri_or->get<std::string>();
  const Revision& revision = call.info().revision;
  auto found = find_resource(server, uri);
  if (!found) return resource_not_found(revision, uri, found.error().message);

  Result<ResourceContent> content;
  try {
    content = found->fixed ? found->fixed->read(call) : found->pattern->read(uri, found->variables, call);
  } catch (const std::exception& e) {
    content = fail(ErrorKind::Internal, "reading " + uri + " failed unexpectedly: " + e.what());
  }
  if (!content) {
    if (content.error().kind == ErrorKind::NotFound) return resource_not_found(revision, uri, content.error().message);
    return handler_failed(content.error());
  }
  Json entry = {{"uri", uri}};
  const std::string& mime = content->mime_type.empty() ? (found->fixed ? found->fixed->mime_type : found->pattern->mime_type) : content->mime_type;
  if (!mime.empty()) entry["mimeType"] = mime;
  if (content->binary)
    entry["blob"] = base64_encode(content->text);
  else
    entry["text"] = std::move(content->text);
  Json result = {{"contents", Json::array({std::move(entry)})}};
  if (revision.modern()) result["ttlMs"] = found->fixed ? found->fixed->ttl_ms : found->pattern->ttl_ms;
  return result;
}

MethodResult get_prompt(const Server::Impl& server, const Json& params, Call& call) {
  auto name = required_string(params, "name");
  if (!name) return name;
  const auto prompt = server.prompts.find(name->get<std::string>());
  if (prompt == server.prompts.end()) return rpc_fail(RpcCode::InvalidParams, "unknown prompt " + name->get<std::string>(), {{"name", *name}});

  std::map<std::string, std::string> args;
  if (const auto given = params.find("arguments"); given != params.end() && !given->is_null()) {
    if (!given->is_object()) return rpc_fail(RpcCode::InvalidParams, "params.arguments must be an object of strings");
    for (const auto& [key, v] : given->items()) {
      if (v.is_structured() || v.is_null()) return rpc_fail(RpcCode::InvalidParams, "params.arguments." + key + " must be a string");
      args[key] = v.is_string() ? v.get<std::string>() : v.dump();
      if (constexpr std::size_t kMost = 1024; args[key].size() > kMost)  // it comes back in the prompt's text
        return rpc_fail(RpcCode::InvalidParams,
                        "params.arguments." + key + " has " + std::to_string(args[key].size()) + " bytes; at most " + std::to_string(kMost));
    }
  }
  for (const PromptArgument& a : prompt->second->arguments)
    if (a.required && !args.contains(a.name))
      return rpc_fail(RpcCode::InvalidParams, "params.arguments." + a.name + " is missing: " + a.description, {{"argument", a.name}});

  Result<PromptResult> value;
  try {
    value = prompt->second->get(args, call);
  } catch (const std::exception& e) {
    value = fail(ErrorKind::Internal, "prompt " + prompt->first + " failed unexpectedly: " + e.what());
  }
  if (!value) return handler_failed(value.error());
  Json result = {{"messages", std::move(value->messages)}};
  if (!value->description.empty()) result["description"] = value->description;
  return result;
}

MethodResult complete(const Server::Impl& server, const Json& params, const Revision& revision) {
  const auto ref = params.find("ref");
  const auto argument = params.find("argument");
  if (ref == params.end() || !ref->is_object() || !ref->contains("type") || !(*ref)["type"].is_string())
    return rpc_fail(RpcCode::InvalidParams, "params.ref must be {type: \"ref/prompt\", name} or {type: \"ref/resource\", uri}");
  if (argument == params.end() || !argument->is_object() || !argument->contains("name") || !(*argument)["name"].is_string())
    return rpc_fail(RpcCode::InvalidParams, "params.argument must be {name, value}");
  const std::string argument_name = (*argument)["name"];
  std::string typed;
  if (const auto v = argument->find("value"); v != argument->end() && v->is_string()) typed = *v;

  const Completer* completer = nullptr;
  const std::string type = (*ref)["type"];
  if (type == "ref/prompt") {
    auto name = required_string(*ref, "name");
    if (!name) return rpc_fail(RpcCode::InvalidParams, "params.ref.name must be the name of a prompt");
    const auto prompt = server.prompts.find(name->get<std::string>());
    if (prompt == server.prompts.end()) return rpc_fail(RpcCode::InvalidParams, "unknown prompt " + name->get<std::string>());
    for (const PromptArgument& a : prompt->second->arguments)
      if (a.name == argument_name && a.complete) completer = &a.complete;
  } else if (type == "ref/resource") {
    auto uri = required_string(*ref, "uri");
    if (!uri) return rpc_fail(RpcCode::InvalidParams, "params.ref.uri must be the URI (template) of a resource");
    bool known = server.resources.contains(uri->get<std::string>());
    for (const ResourceTemplateSpec& t : server.definition.resource_templates)
      if (t.uri_template == uri->get<std::string>()) {
        known = true;
        if (const auto it = t.complete.find(argument_name); it != t.complete.end()) completer = &it->second;
      }
    if (!known) return resource_not_found(revision, uri->get<std::string>(), "no resource " + uri->get<std::string>());
  } else {
    return rpc_fail(RpcCode::InvalidParams, "params.ref.type must be ref/prompt or ref/resource");
  }

  std::vector<std::string> values;
  Json context = Json::object();
  if (const auto c = params.find("context"); c != params.end() && c->is_object())
    if (const auto args = c->find("arguments"); args != c->end() && args->is_object()) context = *args;
  try {
    if (completer) values = (*completer)(typed, context);
  } catch (const std::exception& e) {
    return rpc_fail(RpcCode::InternalError, std::string("completion failed unexpectedly: ") + e.what());
  }
  const std::size_t total = values.size();
  if (total > kMaxCompletions) values.resize(kMaxCompletions);
  return Json{{"completion", {{"values", values}, {"total", total}, {"hasMore", total > values.size()}}}};
}

}  // namespace amk::mcp
