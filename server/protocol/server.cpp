#include "server/protocol/server.h"

#include <cstdio>
#include <cstdlib>

#include "server/protocol/schema.h"
#include "server/protocol/session.h"

namespace amk::mcp {
namespace {

// A definition with a broken schema is our own mistake; it would otherwise surface as wrong answers to clients.
void require(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "server definition: %s\n", status.error().message.c_str());
  std::abort();
}

}  // namespace

Server::Impl::Impl(ServerDefinition d, Options o) : definition(std::move(d)), options(std::move(o)), executor(options.max_threads) {
  for (const ToolSpec& t : definition.tools) {
    if (!t.opaque_input) require(check_schema(t.input_schema, t.name + ".input_schema"));
    require(check_schema(t.output_schema, t.name + ".output_schema"));
    tools[t.name] = &t;
  }
  for (const PromptSpec& p : definition.prompts) prompts[p.name] = &p;
  for (const ResourceSpec& r : definition.resources) resources[r.uri] = &r;
}

std::vector<std::shared_ptr<SessionImpl>> Server::Impl::live_sessions() {
  std::vector<std::shared_ptr<SessionImpl>> out;
  std::lock_guard lock(sessions_mutex);
  for (SessionImpl* s : sessions)
    if (auto alive = std::static_pointer_cast<SessionImpl>(s->weak_from_this().lock())) out.push_back(std::move(alive));
  return out;
}

Server::Server(ServerDefinition definition) : Server(std::move(definition), Options()) {}
Server::Server(ServerDefinition definition, Options options) : impl_(std::make_shared<Impl>(std::move(definition), std::move(options))) {}

Server::~Server() {
  shut_down();
  impl_->executor.stop();
  impl_->timer.stop();
}

const ServerDefinition& Server::definition() const { return impl_->definition; }
const Server::Options& Server::options() const { return impl_->options; }

std::shared_ptr<Session> Server::open(std::shared_ptr<Outlet> outlet) {
  auto session = std::make_shared<SessionImpl>(impl_, std::move(outlet));
  std::lock_guard lock(impl_->sessions_mutex);
  impl_->sessions.insert(session.get());
  if (impl_->closing) session->close();
  return session;
}

void Server::resource_updated(const std::string& uri) {
  for (const auto& session : impl_->live_sessions()) session->resource_updated(uri);
}

void Server::list_changed(const std::string& list) {
  for (const auto& session : impl_->live_sessions()) session->list_changed(list);
}

Result<Json> Server::call_tool(const std::string& name, const Json& args, RequestContext& context) const {
  const auto tool = impl_->tools.find(name);
  if (tool == impl_->tools.end()) return fail(ErrorKind::NotFound, "unknown tool " + name);
  return run_tool(*tool->second, args, context);
}

Result<ResourceContent> Server::read_resource(const std::string& uri, RequestContext& context) const {
  AMK_TRY(found, find_resource(*impl_, uri));
  try {
    return found.fixed ? found.fixed->read(context) : found.pattern->read(uri, found.variables, context);
  } catch (const std::exception& e) {
    return fail(ErrorKind::Internal, "reading " + uri + " failed unexpectedly: " + e.what());
  }
}

void Server::shut_down() {
  {
    std::lock_guard lock(impl_->sessions_mutex);
    impl_->closing = true;
  }
  for (const auto& session : impl_->live_sessions()) {
    session->end_subscriptions();
    session->close();
  }
}

}  // namespace amk::mcp
