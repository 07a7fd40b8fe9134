#include "server/cli/serve.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "core/base/json.h"
#include "core/base/memory.h"
#include "server/cli/cli.h"
#include "server/cli/output.h"
#include "server/daemon/daemon.h"
#include "server/daemon/log.h"
#include "server/daemon/shim.h"
#include "server/dashboard/dashboard.h"
#include "server/http/http_service.h"
#include "server/protocol/conformance_fixtures.h"
#include "server/protocol/server.h"
#include "server/protocol/transport.h"
#include "server/tools/app.h"
#include "server/tools/fault_injection.h"

namespace amk::cli {
namespace {

int complain(const Error& error) {
  std::cerr << "amk: " << error.message << "\n";
  return exit_code_of(error);
}

AppOptions app_options(const std::filesystem::path& workspace) { return {workspace, fault_injection().value_or(nullptr)}; }

Result<std::shared_ptr<mcp::Server>> make_server(const std::shared_ptr<App>& app, bool conformance_fixtures = false) {
  AMK_TRY(definition, make_definition(app));
  mcp::AnnounceListChange announce;
  if (conformance_fixtures) announce = mcp::add_conformance_fixtures(definition);
  mcp::Server::Options options;
  options.log = daemon::log_line;
  auto server = std::make_shared<mcp::Server>(std::move(definition), options);
  if (announce) *announce = [raw = server.get()](const std::string& list) { raw->list_changed(list); };
  return server;
}

// HTTP of one daemon: opened at the start or when a later `serve --http` asks for it; at most one address.
class HttpPart {
 public:
  HttpPart(const daemon::Paths& paths, const ServeOptions& options) : paths_(paths), options_(options) {}

  void attach(const std::shared_ptr<mcp::Server>& server, const std::shared_ptr<App>& app) {
    server_ = server;
    app_ = app;
  }
  void stop() {
    service_.reset();
    dashboard_.reset();
    server_.reset();
    app_.reset();
  }
  bool in_use() const { return service_ && (service_->connections() > 0 || service_->sessions() > 0); }

  Result<Json> open(const std::string& endpoint, bool no_token) {
    if (!service_) {
      AMK_TRY(at, http::parse_endpoint(endpoint));
      http::ServiceOptions o;
      std::tie(o.address, o.port) = at;
      if (!no_token) o.token_file = options_.token_file.empty() ? paths_.workspace / "http.token" : options_.token_file;
      AMK_TRY(service, http::Service::start(server_, o));
      service_ = std::move(service);
      dashboard::DashboardOptions page;
      page.workspace = paths_.workspace;
      page.page_folders = dashboard::default_page_folders();
      dashboard_ = std::make_unique<dashboard::Dashboard>(app_->service(), app_->jobs(), std::move(page));
      dashboard_->add_to(*service_);
      token_file_ = o.token_file;
      daemon::log_line("info", "HTTP at " + service_->url());
    }
    return Json{{"url", service_->url()}, {"token_file", token_file_.empty() ? Json() : Json(token_file_.string())}};
  }

 private:
  const daemon::Paths& paths_;
  const ServeOptions& options_;
  std::shared_ptr<mcp::Server> server_;
  std::shared_ptr<App> app_;
  std::unique_ptr<dashboard::Dashboard> dashboard_;
  std::unique_ptr<http::Service> service_;  // after the dashboard, which it must not outlive
  std::filesystem::path token_file_;
};

int ask_running(const daemon::Paths& paths, const Json& request, int stdout_fd) {
  auto answer = daemon::control(paths, request);
  if (!answer) return complain(answer.error());
  return print_document(stdout_fd, *answer, false) ? kOk : kMachinery;
}

}  // namespace

int serve_daemon(const std::filesystem::path& workspace, const ServeOptions& serve, int stdout_fd) {
  auto paths = daemon::prepare_paths(workspace);
  if (!paths) return complain(paths.error());
  if (serve.stop) return ask_running(*paths, {{"stop", true}, {"force", serve.force}}, stdout_fd);
  keep_little_memory();
  if (auto opened = daemon::open_log(paths->logs); !opened) return complain(opened.error());
  HttpPart http(*paths, serve);
  daemon::DaemonOptions options;
  options.version = version();
  options.idle_exit_s = serve.idle_exit_s;
  options.ready_fd = daemon::take_ready_fd();
  options.keeps = {"store.sqlite", "store.sqlite-wal"};
  // Weak: the server alone keeps the application, so that the store is closed before the daemon gives up its lock.
  std::weak_ptr<App> app;
  options.busy = [&] {
    const auto alive = app.lock();
    return (alive && alive->busy()) || http.in_use();
  };
  options.control = [&](const Json& request) -> Result<Json> {
    const auto endpoint = request.find("http");
    if (endpoint == request.end() || !endpoint->is_string()) return bad_field("control", request, "info, stop or http");
    const auto no_token = request.find("no_token");
    if (no_token != request.end() && !no_token->is_boolean()) return bad_field("control.no_token", *no_token, "true, false");
    return http.open(endpoint->get<std::string>(), no_token != request.end() && no_token->get<bool>());
  };
  options.on_stopping = [&] { http.stop(); };
  auto done = daemon::run_daemon(*paths, options, [&]() -> Result<std::shared_ptr<mcp::Server>> {
    AMK_TRY(opened, App::open(app_options(paths->workspace)));
    app = opened;
    AMK_TRY(server, make_server(opened, serve.conformance_fixtures));
    http.attach(server, opened);
    if (!serve.http.empty()) {
      auto where = http.open(serve.http, serve.no_token);
      if (!where) {
        http.stop();
        return tl::unexpected<Error>(where.error());
      }
      print_document(stdout_fd, *where, false);
    }
    return server;
  });
  if (!done) {
    daemon::log_line("error", done.error().message);
    return complain(done.error());
  }
  if (*done != daemon::DaemonExit::AlreadyRunning) return kOk;
  std::cerr << "amk: a daemon already serves " << paths->workspace.string() << "\n";
  if (serve.http.empty()) return kOk;
  return ask_running(*paths, {{"http", serve.http}, {"no_token", serve.no_token}}, stdout_fd);
}

int serve_stdio(const std::filesystem::path& workspace, bool no_daemon, int stdout_fd) {
  auto paths = daemon::prepare_paths(workspace);
  if (!paths) return complain(paths.error());
  if (!no_daemon) return daemon::run_shim(*paths, daemon::default_launch(*paths), STDIN_FILENO, stdout_fd);
  auto app = App::open(app_options(paths->workspace));
  if (!app) return complain(app.error());
  auto server = make_server(*app);
  if (!server) return complain(server.error());
  auto transport = mcp::fd_transport(::dup(STDIN_FILENO), ::dup(stdout_fd));
  mcp::serve(**server, *transport);
  return kOk;
}

}  // namespace amk::cli
