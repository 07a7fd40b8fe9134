// What the sessions of one server share. Internal to this folder.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "server/protocol/call.h"
#include "server/protocol/executor.h"
#include "server/protocol/server.h"
#include "server/protocol/timer.h"

namespace amk::mcp {

class SessionImpl;

struct Server::Impl : std::enable_shared_from_this<Server::Impl> {
  ServerDefinition definition;
  Options options;
  std::map<std::string, const ToolSpec*> tools;
  std::map<std::string, const PromptSpec*> prompts;
  std::map<std::string, const ResourceSpec*> resources;
  Executor executor;
  Timer timer;

  std::mutex sessions_mutex;
  std::set<SessionImpl*> sessions;  // alive: each takes itself out in its destructor
  bool closing = false;

  Impl(ServerDefinition d, Options o);
  void log(std::string_view level, const std::string& line) const {
    if (options.log) options.log(level, line);
  }
  // Strong references to the sessions that are alive now.
  std::vector<std::shared_ptr<SessionImpl>> live_sessions();
};

// The methods of both eras. A value becomes the result, without the decorations of the modern era.
using MethodResult = tl::expected<Json, RpcError>;

MethodResult list_tools(const Server::Impl& server, const Revision& revision, const Json& params);
MethodResult list_resources(const Server::Impl& server, const Revision& revision, const Json& params);
MethodResult list_resource_templates(const Server::Impl& server, const Revision& revision, const Json& params);
MethodResult list_prompts(const Server::Impl& server, const Revision& revision, const Json& params);

MethodResult call_tool(const Server::Impl& server, const Json& params, Call& call);
MethodResult read_resource(const Server::Impl& server, const Json& params, Call& call);
MethodResult get_prompt(const Server::Impl& server, const Json& params, Call& call);
MethodResult complete(const Server::Impl& server, const Json& params, const Revision& revision);

Json capabilities(const Server::Impl& server, const Revision& revision);
Json server_info(const Server::Impl& server, const Revision& revision);

// Coerces and validates the arguments, runs the tool, checks its result. Never throws.
Result<Json> run_tool(const ToolSpec& tool, const Json& args, RequestContext& context);
// The CallToolResult of a handler's value or error.
Json tool_result(const ToolSpec& tool, const Revision& revision, Result<Json> value);

// The resource that a URI names: a fixed one or the first template that matches. NotFound otherwise.
struct FoundResource {
  const ResourceSpec* fixed = nullptr;
  const ResourceTemplateSpec* pattern = nullptr;
  std::map<std::string, std::string> variables;
};
Result<FoundResource> find_resource(const Server::Impl& server, const std::string& uri);

tl::unexpected<RpcError> rpc_fail(RpcCode code, std::string message, Json data = nullptr);

}  // namespace amk::mcp
