#include "orchestrator/service/service.h"

#include <chrono>
#include <fstream>

#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/stats.h"
#include "orchestrator/service/fit_reply.h"
#include "orchestrator/service/impl.h"
#include "orchestrator/strategy/strategy.h"

namespace amk {
namespace {

constexpr std::size_t kTextLimit = 2000;

Status check_text(std::string_view field, const std::string& text) {
  if (text.size() <= kTextLimit) return {};
  return bad_field(field, std::to_string(text.size()) + " bytes", "at most " + std::to_string(kTextLimit) + " bytes of text");
}

Status write_file(const std::filesystem::path& path, const std::string& text) {
  std::error_code code;
  std::filesystem::create_directories(path.parent_path(), code);  // if it failed, the next open says so
  return replace_file(path, text, {.durable = false});            // made again whenever it is asked for
}

}  // namespace

IncumbentNow Service::Impl::best_of(CampaignId campaign, std::optional<Experiment>& held) {
  return [this, campaign, &held]() -> Result<std::optional<Json>> {
    AMK_TRY(best, campaigns.best(campaign));
    held = std::move(best);
    return held ? std::optional(held->config) : std::nullopt;
  };
}

void compare_predicted(Verdict& verdict, const std::optional<Experiment>& incumbent) {
  if (verdict.latency_kind != LatencyKind::Predicted || !verdict.latency_us || !incumbent || !incumbent->latency_us) return;
  Versus versus;
  versus.incumbent = incumbent->schedule_id;
  versus.ratio = *incumbent->latency_us / *verdict.latency_us;
  versus.ci_low = versus.ci_high = versus.ratio;
  versus.decision = decision_of(decide({versus.ratio, versus.ratio, versus.ratio}));
  verdict.versus = versus;
}

Json config_difference(const SearchSpace& space, const Workload& workload, const Json& from, const Json& to) {
  Json out = Json::object();
  const auto a = workload.point_of(from), b = workload.point_of(to);
  if (!a || !b) return out;
  for (std::size_t k = 0; k < space.knobs.size(); ++k)
    if ((*a)[k] != (*b)[k]) out[space.knobs[k].name] = {space.knobs[k].choices[(*a)[k]], space.knobs[k].choices[(*b)[k]]};
  return out;
}

CampaignKey Service::Impl::key_of(const Opened& opened) {
  return {opened.workload->id(), opened.workload->target().name, opened.device_kind(), opened.workload->regime()};
}

Result<CampaignInfo> Service::Impl::open_campaign(const Opened& opened, const CampaignPolicy& policy) {
  return campaigns.open(key_of(opened), policy);
}

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Service>> Service::create(ServiceOptions options, Store& store, Judge& judge) {
  AMK_TRY(campaigns, CampaignService::create(store));
  auto impl = std::make_unique<Impl>(std::move(options), store, judge, std::move(campaigns));
  // An export that could not be written is repaired by the next catch_up; the store is the truth, so the experiment stands either way.
  impl->campaigns.on_end([files = &impl->files] { files->poke(); });
  impl->files.catch_up_beside(std::chrono::milliseconds(250));
  return std::unique_ptr<Service>(new Service(std::move(impl)));
}

Service::~Service() = default;

CampaignService& Service::campaigns() { return impl_->campaigns; }
Results& Service::result_rows() { return impl_->rows; }
ResultFiles& Service::result_files() { return impl_->files; }
Workloads& Service::workloads() { return impl_->workloads; }

Json Service::doctor() {
  Json out = {{"version", impl_->options.version}, {"workspace", impl_->options.workspace.string()}};
  Json advice = Json::array();
  const StoreHealth health = impl_->store.health();
  out["store"] = to_json(health);
  if (health.disk_full)
    advice.push_back(
        "The disk of the workspace is full, or a limit on the size of files (ulimit -f) is reached: free space; finished results wait in memory and "
        "are written then.");
  if (!health.last_error.empty()) advice.push_back("The last write to the store failed: " + health.last_error);
  const Json gpu = impl_->judge.gpu_report();
  for (const auto& [key, value] : gpu.items()) out[key] = value;
  out["targets"] = gpu_target_names(impl_->options.gpus_dir);
  out["strategies"] = strategy_names();
  if (const auto local = impl_->judge.local_gpus(); !local.empty()) {
    out["auto_target"] = local.front().name;
  } else {
    out["auto_target"] = "rtx5090";
    advice.push_back(
        "No usable NVIDIA GPU here: device=cpu judges correctness on the reference VM and predicts the latency; device=cuda is unavailable.");
  }
  out["healthy"] = !health.disk_full && health.last_error.empty();
  out["advice"] = advice;
  return out;
}

Result<Json> Service::eval(const EvalRequest& request, const Progress& progress) {
  AMK_CHECK(check_text("hypothesis", request.hypothesis));
  AMK_TRY(opened, impl_->workloads.open(request.model, request.gpu, request.device));
  const Workload& workload = *opened.workload;
  AMK_TRY(canonical, workload.canonical(request.config));
  AMK_TRY(campaign, impl_->open_campaign(opened));
  AMK_TRY(best, impl_->campaigns.best(campaign.id));
  const auto busy = impl_->campaigns.activity(campaign.id);
  AMK_TRY(verdict, impl_->judge.judge(workload, canonical, opened.device, impl_->best_of(campaign.id, best), progress));
  compare_predicted(verdict, best);
  if (!request.hypothesis.empty()) verdict.notes += (verdict.notes.empty() ? "" : "; ") + ("hypothesis: " + request.hypothesis);
  AMK_TRY(issued, impl_->campaigns.issue(campaign.id, std::move(verdict)));
  Json out = to_json(issued);
  out["campaign"] = to_string(campaign.id);
  return out;
}

Result<Json> Service::status(const std::string& campaign) {
  if (campaign.empty()) return impl_->campaigns.status(std::nullopt);
  AMK_TRY(id, impl_->campaigns.resolve(campaign));
  return impl_->campaigns.status(id);
}

Result<Json> Service::next(const std::string& campaign) {
  AMK_TRY(id, impl_->campaigns.resolve(campaign));
  return impl_->campaigns.next(id);
}

Result<Json> Service::report(const std::string& campaign) {
  AMK_TRY(id, impl_->campaigns.resolve(campaign));
  AMK_TRY(report, impl_->campaigns.report(id));
  const std::filesystem::path base = impl_->options.workspace / "reports" / to_string(id);
  AMK_CHECK(write_file(base.string() + ".md", report.markdown));
  AMK_CHECK(write_file(base.string() + ".json", report.json.dump(2) + "\n"));
  Json plots = Json::array();
  for (const auto& [name, svg] : report.plots) {
    const std::string path = base.string() + "-" + name + ".svg";
    AMK_CHECK(write_file(path, svg));
    plots.push_back(path);
  }
  Json reply = {{"campaign", to_string(id)},
                {"plots", plots},
                {"markdown", report.markdown},
                {"path", base.string() + ".md"},
                {"json_path", base.string() + ".json"}};
  // Agents read all of a reply; the file has the rest.
  if (const std::size_t bytes = reply.dump().size(); bytes > kReplyLimit) {
    const std::string rest = "\n… the rest is in " + base.string() + ".md\n";
    const std::size_t away = bytes - kReplyLimit + 2 * rest.size();
    const std::size_t keep = report.markdown.size() > away ? report.markdown.rfind('\n', report.markdown.size() - away) : std::string::npos;
    reply["markdown"] = report.markdown.substr(0, keep == std::string::npos ? 0 : keep + 1) + rest;
  }
  return reply;
}

Result<Json> Service::record(const std::string& campaign, RecordRequest request) {
  AMK_CHECK(check_text("description", request.description));
  AMK_TRY(id, impl_->campaigns.resolve(campaign));
  if (request.config) {
    AMK_TRY(info, impl_->campaigns.info(id));
    // The workload alone decides what the config means; the device plays no part in that.
    AMK_TRY(opened, impl_->workloads.open(info.key.workload, info.key.gpu, "cpu"));
    AMK_TRY(canonical, opened.workload->canonical(*request.config));
    request.schedule_id = opened.workload->schedule_id(canonical);
    request.config = std::move(canonical);
  }
  return impl_->campaigns.record(id, request);
}

Result<Json> Service::results(const Json& arguments) {
  const auto as_rows = [](Result<Json> rows) { return rows ? Result<Json>(Json{{"rows", std::move(*rows)}}) : rows; };
  // What is not a list of rows has filters of its own; a filter that counts for nothing would be taken for one that does.
  const bool best = arguments.value("best", false);
  std::string what = best ? "best" : arguments.contains("diff") ? "diff" : arguments.contains("group") ? "group" : "";
  if (!what.empty())
    for (const char* other : {"best", "diff", "group", "model", "gpu", "campaign", "outcome", "kind", "schedule_id", "sort", "cursor"}) {
      const std::string name = other;
      const bool takes = name == what || (best && (name == "model" || name == "gpu" || name == "campaign"));
      if (!takes && arguments.contains(name) && arguments[name] != false)
        return bad_field(name, arguments[name], "left out beside " + what + (best ? ", which takes model, gpu and campaign" : ""));
    }
  if (best) {
    Json of = Json::object();
    for (const char* filter : {"model", "gpu", "campaign"})
      if (arguments.contains(filter)) of[filter] = arguments[filter];
    AMK_TRY(query, results_query_from_json(of));
    AMK_TRY(rows, impl_->rows.best(query));
    if (rows.dump().size() > kReplyLimit)  // one campaign's has it
      for (Json& row : rows) row.erase("config");
    return Json{{"rows", std::move(rows)}};
  }
  if (what == "diff") {
    const Json& pair = arguments["diff"];
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      return bad_field("diff", pair, "two schedule_ids or experiment ids, e.g. [\"e3\", \"e7\"]");
    return impl_->rows.config_diff(pair[0].get<std::string>(), pair[1].get<std::string>());
  }
  if (what == "group") {
    if (!arguments["group"].is_string()) return bad_field("group", arguments["group"], "model, gpu, device_kind, regime or outcome");
    return as_rows(impl_->rows.grouped(arguments["group"].get<std::string>()));
  }
  Json filters = arguments;
  filters.erase("best");
  AMK_TRY(query, results_query_from_json(filters));
  AMK_TRY(page, impl_->rows.page(query));
  // A page that nobody asked to be long is one that an agent reads whole.
  constexpr int kDefaultPage = 20;
  const auto bytes = [&page] { return Json(page.rows).dump().size() + 100; };
  while (query.limit <= kDefaultPage && page.rows.size() > 1 && bytes() > kReplyLimit) {
    query.limit = static_cast<int>(page.rows.size()) - 1;
    AMK_TRY(shorter, impl_->rows.page(query));
    page = std::move(shorter);
  }
  Json out = {{"rows", page.rows}};
  if (!page.next_cursor.empty()) out["next_cursor"] = page.next_cursor;
  return out;
}

Result<Json> Service::import(const std::filesystem::path& file, const std::string& source) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(file, code)) return bad_field("file", file.string(), "the path of a regular .tsv or .jsonl file");
  AMK_TRY(report, import_results(impl_->store, file, source.empty() ? file.filename().string() : source));
  return to_json(report);
}

}  // namespace amk
