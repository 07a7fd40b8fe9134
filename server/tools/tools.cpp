// The tools: arguments in, one call of the service, JSON out. Schemas and descriptions: schemas/tools.
#include <algorithm>
#include <map>

#include "core/base/json.h"
#include "core/base/parse_json.h"
#include "embedded/tool_schema_files.h"
#include "server/tools/app.h"
#include "server/tools/parts.h"

namespace amk {
namespace {

using mcp::RequestContext;
using Handler = std::function<Result<Json>(App&, const Json&, RequestContext&)>;

// A call that may take long: runs as a job, answered directly when it ends within wait_s. join_identical: equal calls are one job (an
// autoresearch run is named by its arguments; two of it at once would tread on each other's experiments).
Result<Json> as_job(App& app, const char* kind, Json args, RequestContext& context, bool join_identical,
                    std::function<Result<Json>(const Progress&)> work) {
  const double wait_s = args.value("wait_s", kDefaultWaitS);
  JobRequest request;
  request.kind = kind;
  request.join_identical = join_identical;
  request.request_key = args.value("request_key", "");
  args.erase("wait_s");
  args.erase("request_key");
  request.args = std::move(args);
  request.run = [work = std::move(work)](JobContext& job) -> Result<Json> {
    Progress progress;
    progress.stop = job.stop_token();
    progress.report = [&job](double fraction, std::string_view message) {
      job.progress(fraction < 0 ? 0 : fraction, fraction < 0 ? -1 : 1, message);
    };
    return work(progress);
  };
  return app.jobs().call(std::move(request), wait_s, context);
}

SearchRequest search_request(const Json& args) {
  SearchRequest r;
  r.model = args["model"].get<std::string>();
  r.gpu = args.value("gpu", "auto");
  r.device = args.value("device", "auto");
  r.strategy = args.value("strategy", "");
  r.seed = args.value("seed", std::uint64_t{1});
  r.cold = args.value("cold", false);
  if (args.contains("start_config")) r.start_config = args["start_config"];
  r.budget = args.value("budget", std::int64_t{8});
  if (args.contains("iters")) r.iters = args["iters"].get<std::int64_t>();
  if (args.contains("minutes")) r.minutes = args["minutes"].get<double>();
  r.overnight = args.value("overnight", false);
  r.reopen = args.value("reopen", false);
  return r;
}

Result<Json> job(App& app, const Json& args, RequestContext& context) {
  const std::string id = args["job_id"].get<std::string>();
  if (args.value("cancel", false)) {
    AMK_TRY(asked, app.jobs().cancel(id));
    (void)asked;
  }
  AMK_TRY(snapshot, app.jobs().wait(id, args.value("wait_s", 0.0), &context));
  return to_json(snapshot);
}

Result<Json> record(App& app, const Json& args, RequestContext&) {
  RecordRequest r;
  r.status = args["status"].get<std::string>();
  if (args.contains("latency_us")) r.latency_us = args["latency_us"].get<double>();
  if (args.contains("pct_roofline")) r.pct_roofline = args["pct_roofline"].get<double>();
  r.kind = args.value("kind", "");
  if (args.contains("config")) r.config = args["config"];
  r.description = args.value("description", "");
  r.verdict_id = args.value("verdict_id", "");
  r.idempotency_key = args.value("idempotency_key", "");
  return app.service().record(args.value("campaign", ""), std::move(r));
}

const std::map<std::string, Handler>& handlers() {
  static const std::map<std::string, Handler> map = {
      {"amk_doctor", [](App& app, const Json&, RequestContext&) -> Result<Json> { return app.service().doctor(); }},
      {"amk_propose",
       [](App& app, const Json& a, RequestContext&) {
         return app.service().propose(a["model"].get<std::string>(), a.value("gpu", "auto"), a.value("device", "auto"));
       }},
      {"amk_eval",
       [](App& app, const Json& a, RequestContext& context) {
         EvalRequest r{a["model"].get<std::string>(), a.value("gpu", "auto"), a.value("device", "auto"), a["config"], a.value("hypothesis", "")};
         return as_job(app, "amk_eval", a, context, false, [&app, r](const Progress& p) { return app.service().eval(r, p); });
       }},
      {"amk_loop",
       [](App& app, const Json& a, RequestContext& context) {
         return as_job(app, "amk_loop", a, context, false, [&app, r = search_request(a)](const Progress& p) { return app.service().loop(r, p); });
       }},
      {"amk_autoresearch",
       [](App& app, const Json& a, RequestContext& context) {
         return as_job(app, "amk_autoresearch", a, context, true,
                       [&app, r = search_request(a)](const Progress& p) { return app.service().autoresearch(r, p); });
       }},
      {"amk_orchestrate_status", [](App& app, const Json& a, RequestContext&) { return app.service().status(a.value("campaign", "")); }},
      {"amk_orchestrate_next", [](App& app, const Json& a, RequestContext&) { return app.service().next(a.value("campaign", "")); }},
      {"amk_orchestrate_report", [](App& app, const Json& a, RequestContext&) { return app.service().report(a.value("campaign", "")); }},
      {"amk_orchestrate_record", record},
      {"amk_job", job},
      {"amk_results", [](App& app, const Json& a, RequestContext&) { return app.service().results(a); }},
      {"amk_results_import",
       [](App& app, const Json& a, RequestContext&) { return app.service().import(a["file"].get<std::string>(), a.value("source", "")); }},
  };
  return map;
}

}  // namespace

Result<std::vector<mcp::ToolSpec>> make_tools(const std::shared_ptr<App>& app) {
  // In the order of a session, not of the alphabet.
  static constexpr const char* kOrder[] = {"amk_doctor",
                                           "amk_propose",
                                           "amk_eval",
                                           "amk_loop",
                                           "amk_autoresearch",
                                           "amk_orchestrate_status",
                                           "amk_orchestrate_next",
                                           "amk_orchestrate_report",
                                           "amk_orchestrate_record",
                                           "amk_job",
                                           "amk_results",
                                           "amk_results_import"};
  std::map<std::string, Json> documents;
  for (const auto& [path, text] : tool_schema_files()) {
    AMK_TRY(document, parse_json(text, path));
    const std::string name = document["name"].get<std::string>();
    documents[name] = std::move(document);
  }
  std::vector<mcp::ToolSpec> tools;
  for (const char* name : kOrder) {
    const auto at = documents.find(name);
    const auto handler = handlers().find(name);
    if (at == documents.end() || handler == handlers().end()) return fail(ErrorKind::Internal, std::string(name) + " has no schema or no handler");
    const Json& d = at->second;
    mcp::ToolSpec spec;
    spec.name = name;
    spec.title = d["title"].get<std::string>();
    spec.description = d["description"].get<std::string>();
    spec.input_schema = d["inputSchema"];
    spec.output_schema = d["outputSchema"];
    const Json& hints = d["annotations"];
    spec.annotations = {hints["readOnlyHint"].get<bool>(), hints["destructiveHint"].get<bool>(), hints["idempotentHint"].get<bool>(),
                        hints["openWorldHint"].get<bool>()};
    spec.call = [app, call = handler->second](const Json& args, RequestContext& context) { return call(*app, args, context); };
    tools.push_back(std::move(spec));
  }
  return tools;
}

}  // namespace amk
