// A stand-in for `amk` with fake tools: the daemon, the shim and one-shot calls, as the real program wires them.
//   fake_amk mcp|serve|call|direct --workspace DIR [TOOL ARGS]
//   fake_amk http ADDRESS:PORT [--conformance-fixtures] [--token FILE]   serves HTTP alone until stdin ends; prints {"url": …}
// Environment of the daemon: FAKE_IDLE_S (idle exit), FAKE_BROKEN=1 (the server cannot be made).
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <mutex>

#include "core/base/parse_json.h"
#include "server/daemon/client.h"
#include "server/daemon/jobs.h"
#include "server/daemon/log.h"
#include "server/daemon/shim.h"
#include "server/http/http_service.h"
#include "server/protocol/conformance_fixtures.h"
#include "tests/support/fake_server/fake_server.h"

using namespace amk;

namespace {

// Long calls as the real tools make them: `job` starts or joins one, `job_wait` reads or cancels it.
void add_job_tools(mcp::ServerDefinition& d, JobManager& jobs) {
  const Json output = {{"type", "object"},
                       {"properties",
                        {{"job_id", {{"type", "string"}}},
                         {"state", {{"type", "string"}}},
                         {"progress", {{"type", "object"}}},
                         {"slept_s", {{"type", "number"}}},
                         {"result", {{"type", "object"}}},
                         {"kind", {{"type", "string"}}}}}};
  mcp::ToolSpec job{.name = "job", .title = "Job", .description = "Sleeps as a job."};
  job.input_schema = Json::parse(R"({"type":"object","additionalProperties":false,"required":["seconds"],"properties":{
      "seconds":{"type":"number","description":"how long"},"wait_s":{"type":"number","default":45,"description":"default 45"},
      "request_key":{"type":"string","default":"","description":"repeat to join"}}})");
  job.output_schema = output;
  job.call = [&jobs](const Json& args, mcp::RequestContext& context) {
    const double seconds = args["seconds"];
    return jobs.call({.kind = "job",
                      .args = {{"seconds", seconds}},
                      .request_key = args["request_key"],
                      .run = [seconds](JobContext& c) -> Result<Json> {
                        std::mutex mutex;
                        std::condition_variable_any never;
                        std::unique_lock lock(mutex);
                        for (int i = 0; i < 10; ++i) {
                          c.progress(i, 10, "tenth " + std::to_string(i));
                          never.wait_for(lock, c.stop_token(), std::chrono::duration<double>(seconds / 10), [] { return false; });
                          if (c.stop_token().stop_requested()) return fail(ErrorKind::Cancelled, "the job was cancelled");
                        }
                        return Json{{"slept_s", seconds}};
                      }},
                     args["wait_s"], context);
  };
  d.tools.push_back(std::move(job));
  mcp::ToolSpec wait{.name = "job_wait", .title = "Wait", .description = "Waits for a job."};
  wait.input_schema = Json::parse(R"({"type":"object","additionalProperties":false,"required":["job_id"],"properties":{
      "job_id":{"type":"string","description":"as job returned it"},"wait_s":{"type":"number","default":0,"description":"default 0"},
      "cancel":{"type":"boolean","default":false,"description":"default false"}}})");
  wait.output_schema = output;
  wait.call = [&jobs](const Json& args, mcp::RequestContext& context) -> Result<Json> {
    if (args["cancel"]) AMK_CHECK(jobs.cancel(args["job_id"]).map([](const JobSnapshot&) {}));
    AMK_TRY(snapshot, jobs.wait(args["job_id"], args["wait_s"], &context));
    return to_json(snapshot);
  };
  d.tools.push_back(std::move(wait));
}

// Where the call came from: relative paths are meant against it.
void add_where(mcp::ServerDefinition& d) {
  mcp::ToolSpec t{.name = "where", .title = "Where", .description = "The client's folder and our process id."};
  t.input_schema = Json::parse(R"({"type":"object","properties":{},"additionalProperties":false})");
  t.output_schema = Json::parse(R"({"type":"object","properties":{"cwd":{"type":"string"},"pid":{"type":"integer"}}})");
  t.call = [](const Json&, mcp::RequestContext& context) -> Result<Json> { return Json{{"cwd", context.working_directory()}, {"pid", ::getpid()}}; };
  d.tools.push_back(std::move(t));
}

int serve(const daemon::Paths& paths) {
  std::unique_ptr<JobManager> jobs;
  const char* idle = std::getenv("FAKE_IDLE_S");
  daemon::DaemonOptions options{.version = "1.2.3", .idle_exit_s = idle ? std::atof(idle) : 600};
  options.busy = [&] { return jobs && jobs->active() > 0; };
  options.ready_fd = daemon::take_ready_fd();
  options.keeps = {"store.sqlite"};
  auto outcome = daemon::run_daemon(paths, options, [&]() -> Result<std::shared_ptr<mcp::Server>> {
    if (std::getenv("FAKE_BROKEN")) return fail(ErrorKind::Corrupt, "the store is damaged", {{"path", "x"}});
    AMK_CHECK(daemon::open_log(paths.logs));
    jobs = std::make_unique<JobManager>();
    mcp::ServerDefinition d = amk::testing::fake_definition();
    add_job_tools(d, *jobs);
    add_where(d);
    return std::make_shared<mcp::Server>(std::move(d), mcp::Server::Options{.log = daemon::log_line});
  });
  if (outcome) return 0;
  std::cerr << outcome.error().message << "\n";
  return 3;
}

int serve_http(const std::vector<std::string>& rest) {
  mcp::ServerDefinition d = amk::testing::fake_definition();
  mcp::AnnounceListChange announce;
  http::ServiceOptions options;
  for (std::size_t i = 1; i < rest.size(); ++i) {
    if (rest[i] == "--conformance-fixtures") announce = mcp::add_conformance_fixtures(d);
    if (rest[i] == "--token" && i + 1 < rest.size()) options.token_file = rest[i + 1];
  }
  auto server = std::make_shared<mcp::Server>(std::move(d));
  if (announce) *announce = [raw = server.get()](const std::string& list) { raw->list_changed(list); };
  auto endpoint = http::parse_endpoint(rest.at(0));
  if (endpoint) std::tie(options.address, options.port) = *endpoint;
  auto service = endpoint ? http::Service::start(server, options) : tl::unexpected<Error>(endpoint.error());
  if (!service) {
    std::cerr << service.error().message << "\n";
    return 3;
  }
  std::cout << Json{{"url", (*service)->url()}}.dump() << std::endl;
  while (std::cin.get() != EOF) {
  }
  return 0;
}

int call(daemon::ToolClient& client, const std::string& tool, const std::string& args) {
  auto parsed = parse_json(args, "args");
  if (!parsed) return 2;
  auto result = client.call(tool, *parsed, [](const daemon::Progress& p) { std::cerr << p.done << "/" << p.total << " " << p.message << "\n"; });
  std::cout << canonical_dump(result ? *result : to_json(result.error())) << "\n";
  return result ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string verb = argc > 1 ? argv[1] : "", workspace;
  std::vector<std::string> rest;
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--workspace") == 0 && i + 1 < argc)
      workspace = argv[++i];
    else if (std::strcmp(argv[i], "--background") != 0)
      rest.push_back(argv[i]);
  }
  if (verb == "http" && !rest.empty()) return serve_http(rest);
  const int out = verb == "mcp" ? daemon::take_stdout() : 1;
  auto paths = daemon::prepare_paths(workspace);
  if (!paths) {
    std::cerr << paths.error().message << "\n";
    return 3;
  }
  const daemon::Launch launch = daemon::default_launch(*paths);
  if (verb == "mcp") return daemon::run_shim(*paths, launch, 0, out);
  if (verb == "serve") return serve(*paths);
  if (verb == "call" && rest.size() == 2) return call(*daemon::daemon_client(*paths, launch), rest[0], rest[1]);
  if (verb == "direct" && rest.size() == 2)
    return call(*daemon::in_process_client(std::make_shared<mcp::Server>(amk::testing::fake_definition())), rest[0], rest[1]);
  std::cerr << "usage: fake_amk mcp|serve|call|direct --workspace DIR [TOOL ARGS]\n";
  return 2;
}
