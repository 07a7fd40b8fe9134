#include "server/cli/serve.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>

#include "core/base/json.h"
#include "server/cli/cli.h"
#include "server/daemon/daemon.h"
#include "server/daemon/log.h"
#include "server/daemon/shim.h"
#include "server/http/http_service.h"
#include "server/protocol/server.h"
#include "server/protocol/transport.h"
#include "server/tools/app.h"

namespace amk::cli {
namespace {

int complain(const Error& error) {
  std::cerr << "amk: " << error.message << "\n";
  return exit_code_of(error);
}

Result<std::shared_ptr<mcp::Server>> make_server(const std::shared_ptr<App>& app) {
  AMK_TRY(definition, make_definition(app));
  mcp::Server::Options options;
  options.log = daemon::log_line;
  return std::make_shared<mcp::Server>(std::move(definition), options);
}

Result<std::unique_ptr<http::Service>> start_http(const std::shared_ptr<mcp::Server>& server, const daemon::Paths& paths,
                                                  const std::string& endpoint) {
  AMK_TRY(address, http::parse_endpoint(endpoint));
  http::ServiceOptions options;
  options.address = address.first;
  options.port = address.second;
  options.token_file = paths.workspace / "http-token";
  AMK_TRY(service, http::Service::start(server, options));
  std::ofstream(paths.workspace / "http.json") << Json{{"url", service->url()}, {"token_file", options.token_file.string()}}.dump() << "\n";
  std::cerr << "amk: MCP at " << service->url() << "; bearer token in " << options.token_file.string() << "\n";
  return service;
}

}  // namespace

int serve_daemon(const std::filesystem::path& workspace, double idle_exit_s, const std::string& http) {
  auto paths = daemon::prepare_paths(workspace);
  if (!paths) return complain(paths.error());
  if (auto opened = daemon::open_log(paths->logs); !opened) return complain(opened.error());
  daemon::DaemonOptions options;
  options.version = version();
  options.idle_exit_s = idle_exit_s;
  if (const char* ready = std::getenv("AMK_READY_FD")) options.ready_fd = std::atoi(ready);
  // Weak: the server alone keeps the application, so that the store is closed before the daemon gives up its lock.
  std::weak_ptr<App> app;
  options.busy = [&app] {
    const auto alive = app.lock();
    return alive && alive->busy();
  };
  auto done = daemon::run_daemon(*paths, options, [&]() -> Result<std::shared_ptr<mcp::Server>> {
    AMK_TRY(opened, App::open({paths->workspace}));
    app = opened;
    AMK_TRY(server, make_server(opened));
    if (http.empty()) return server;
    // One owner for both: the web service goes when the daemon lets go of the server, before its lock.
    struct Both {
      std::shared_ptr<mcp::Server> server;
      std::unique_ptr<http::Service> web;
    };
    auto both = std::make_shared<Both>();
    both->server = server;
    AMK_TRY(web, start_http(server, *paths, http));
    both->web = std::move(web);
    return std::shared_ptr<mcp::Server>(both, server.get());
  });
  if (!done) {
    daemon::log_line("error", done.error().message);
    return complain(done.error());
  }
  if (*done == daemon::DaemonExit::AlreadyRunning) std::cerr << "amk: a daemon already serves " << paths->workspace.string() << "\n";
  return kOk;
}

int serve_stdio(const std::filesystem::path& workspace, bool no_daemon, int stdout_fd) {
  auto paths = daemon::prepare_paths(workspace);
  if (!paths) return complain(paths.error());
  if (!no_daemon) return daemon::run_shim(*paths, daemon::default_launch(*paths), STDIN_FILENO, stdout_fd);
  auto app = App::open({paths->workspace});
  if (!app) return complain(app.error());
  auto server = make_server(*app);
  if (!server) return complain(server.error());
  auto transport = mcp::fd_transport(::dup(STDIN_FILENO), ::dup(stdout_fd));
  mcp::serve(**server, *transport);
  return kOk;
}

}  // namespace amk::cli
