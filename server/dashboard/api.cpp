#include "server/dashboard/api.h"

#include "server/tools/app.h"

namespace amk::dashboard {
namespace {

constexpr std::size_t kJobsShown = 12, kMostTraceBins = 2000, kTraceEventsSent = 12'000;

// A job without its result, which may be large: the page shows the campaign instead.
Json job_json(const JobSnapshot& job) {
  Json out = {{"job_id", job.job_id}, {"kind", job.kind},   {"state", to_string(job.state)},
              {"done", job.done},     {"total", job.total}, {"message", job.message}};
  for (const char* name : {"model", "gpu"})
    if (job.args.is_object() && job.args.contains(name)) out[name] = job.args[name];
  if (job.error) out["error"] = job.error->message;
  return out;
}

}  // namespace

Api::Api(amk::Service& service, JobManager& jobs, std::filesystem::path workspace)
    : service_(service), jobs_(jobs), workspace_(std::move(workspace)), histories_(service), traces_(workspace_ / "traces") {}

Json Api::state() const {
  Json out = {
      {"version", version()}, {"workspace", workspace_.string()}, {"campaigns", Json::array()}, {"campaigns_total", 0}, {"jobs", Json::array()}};
  if (auto status = service_.status("")) {
    if (status->contains("campaigns")) out["campaigns"] = (*status)["campaigns"];
    out["campaigns_total"] = status->value("campaigns_total", 0);
  } else {
    out.update(to_json(status.error()));
  }
  for (const JobSnapshot& job : jobs_.list()) {
    if (out["jobs"].size() == kJobsShown) break;
    out["jobs"].push_back(job_json(job));
  }
  return out;
}

Result<Json> Api::get(const std::string& name, std::string_view text) {
  const auto with = [&](const std::vector<std::string>& accepted, auto call) -> Result<Json> {
    AMK_TRY(query, Query::parse(text, accepted));
    return call(query);
  };
  if (name == "state") return with({}, [&](const Query&) -> Result<Json> { return state(); });
  if (name == "campaign") return with({"id"}, [&](const Query& q) { return campaign(q); });
  if (name == "series")
    return with({"campaign", "points"}, [&](const Query& q) -> Result<Json> {
      AMK_TRY(points, q.integer("points", 2000, 10, 20'000));
      AMK_TRY(id, q.required("campaign"));
      AMK_TRY(history, histories_.of(id));
      return history->series(static_cast<std::size_t>(points));
    });
  if (name == "importance")
    return with({"campaign"}, [&](const Query& q) -> Result<Json> {
      AMK_TRY(id, q.required("campaign"));
      AMK_TRY(history, histories_.of(id));
      return history->importance();
    });
  if (name == "results")
    return with({"model", "gpu", "campaign", "outcome", "kind", "schedule_id", "loop", "sort", "limit", "cursor"},
                [&](const Query& q) { return results(q); });
  if (name == "diff")
    return with({"a", "b"}, [&](const Query& q) -> Result<Json> {
      AMK_TRY(a, q.required("a"));
      AMK_TRY(b, q.required("b"));
      return service_.results({{"diff", {a, b}}});
    });
  if (name == "experiment") return with({"id"}, [&](const Query& q) { return experiment(q); });
  if (name == "traces") return with({}, [&](const Query&) -> Result<Json> { return Json{{"traces", traces_.list()}}; });
  if (name == "trace") return with({"schedule_id", "from_us", "to_us", "bins"}, [&](const Query& q) { return trace(q); });
  return fail(ErrorKind::NotFound, "no endpoint " + name.substr(0, 100) +
                                       "; there are: state, events, campaign, series, importance, results, diff, experiment, traces, trace");
}

Result<Json> Api::campaign(const Query& q) {
  AMK_TRY(id, q.required("id"));
  AMK_TRY(out, service_.status(id));
  out["best_verdict"] = nullptr;
  if (out["best"].is_object() && out["best"]["verdict_id"].is_string()) {
    AMK_TRY(verdict, service_.campaigns().verdict(out["best"]["verdict_id"].get<std::string>()));
    out["best_verdict"] = to_json(verdict);
  }
  return out;
}

Result<Json> Api::experiment(const Query& q) {
  AMK_TRY(text, q.required("id"));
  AMK_TRY(id, experiment_id_from(text));
  AMK_TRY(experiment, service_.campaigns().experiment(id));
  Json out = to_json(experiment);
  out["traced"] = traces_.has(experiment.schedule_id);
  out["verdict"] = nullptr;
  if (!experiment.verdict_id.empty()) {
    AMK_TRY(verdict, service_.campaigns().verdict(experiment.verdict_id));
    out["verdict"] = to_json(verdict);
  }
  return out;
}

Result<Json> Api::results(const Query& q) {
  Json args = Json::object();
  for (const char* name : {"model", "gpu", "campaign", "kind", "schedule_id", "loop", "sort", "cursor"}) {
    AMK_TRY(value, q.text(name));
    if (!value.empty()) args[name] = value;
  }
  if (!q.all("outcome").empty()) args["outcome"] = q.all("outcome");
  AMK_TRY(limit, q.integer("limit", 50, 1, kLargestPage));
  args["limit"] = limit;
  return service_.results(args);
}

Result<Json> Api::trace(const Query& q) {
  AMK_TRY(id, q.required("schedule_id"));
  AMK_TRY(from, q.number("from_us"));
  AMK_TRY(to, q.number("to_us"));
  AMK_TRY(bins, q.integer("bins", 800, 1, kMostTraceBins));
  if (from.has_value() != to.has_value() || (from && !(*from < *to)))
    return bad_field("from_us", from ? Json(*from) : Json(nullptr), "both from_us and to_us, from_us < to_us; or neither");
  AMK_TRY(trace, traces_.open(id));
  Json out = trace->window(from.value_or(0), to.value_or(0), static_cast<std::size_t>(bins), kTraceEventsSent);
  out["schedule_id"] = id;
  return out;
}

}  // namespace amk::dashboard
