// Verbs that are one tool call.
#include <cmath>
#include <filesystem>

#include "core/program/lower_instruction.h"
#include "server/cli/call.h"
#include "server/cli/command_line.h"

namespace amk::cli {
namespace {

// JSON has no infinities and no NaN: they would travel as null and count as left out.
Status put_number(Json& args, const char* key, double value) {
  if (!std::isfinite(value)) return bad_field(key, std::to_string(value), "a finite number");
  args[key] = value;
  return {};
}

int verdict_exit(const Json& v) {
  if (v.value("valid", false) && v.value("correct", false)) return kOk;
  return v.value("status", "") == "unavailable" ? kMachinery : kNotGood;
}

int search_exit(const Json& r) {
  if (r.contains("state") && r.contains("job_id")) return kOk;  // --detach
  return r.contains("best_verdict") && r["best_verdict"].is_object() ? kOk : kNotGood;
}

}  // namespace

void CommandLine::declare_evaluation() {
  tool(app_.add_subcommand("doctor", "Health of this machine and workspace, and what to do about it"), {"amk_doctor", [] { return Json::object(); }});

  CLI::App* propose = app_.add_subcommand("propose", "Search space, incumbent, what was tried, suggestions");
  model_options(propose);
  tool(propose, {"amk_propose", [this]() -> Result<Json> { return model_args(); }});

  CLI::App* eval = app_.add_subcommand("eval", "Judge one schedule config: prove, check, time");
  model_options(eval);
  eval->add_option("--config", a_.config, "JSON file, - for stdin, or the JSON text; default: the default config");
  eval->add_option("--hypothesis", a_.hypothesis, "Why it should be faster; kept with the verdict");
  eval->footer(
      "Examples:\n"
      "  amk eval toy --device cpu\n"
      "  amk eval llama-3.2-1b --gpu h200 --device cpu --config '{\"pipelining_depth\":3}'\n"
      "  amk eval det_gemm:fwd:4096x12288x4096 --config best.json --hypothesis 'deeper stages hide the loads'");
  tool(eval, {"amk_eval",
              [this]() -> Result<Json> {
                Json args = model_args();
                args["config"] = Json::object();
                if (!a_.config.empty()) {
                  AMK_TRY(config, read_config(a_.config, "--config"));
                  args["config"] = std::move(config);
                }
                put(args, "hypothesis", a_.hypothesis);
                return args;
              },
              verdict_exit});

  CLI::App* loop = app_.add_subcommand("loop", "Keep/revert loop over a budget of evaluations");
  loop_options(loop);
  loop->footer(
      "Examples:\n"
      "  amk loop toy --gpu rtx5090 --device cpu --budget 64 --pretty\n"
      "  amk loop llama-3.2-1b --budget 32 --detach         then: amk job ID --wait 45");
  tool(loop, {"amk_loop", [this] { return loop_args(); }, search_exit});

  CLI::App* tune = app_.add_subcommand("tune-instruction", "Search the knobs of one instruction alone, in every layer, against its own reference");
  tune->add_option("op", a_.op, "Instruction: " + accepted_instruction_ops())->required();
  loop_options(tune);
  tune->footer(
      "Examples:\n"
      "  amk tune-instruction gate_up llama-3.2-1b --gpu h200 --device cpu --budget 16\n"
      "  amk tune-instruction attention small --gpu rtx5090 --device cpu --budget 4\n"
      "The campaign is that of the workload MODEL#OP, which every other verb and tool takes as well.");
  tool(tune, {"amk_loop",
              [this]() -> Result<Json> {
                if (!is_instruction_op(a_.op)) return bad_field("op", a_.op, accepted_instruction_ops());
                if (a_.model.find(':') != std::string::npos)
                  return bad_field("model", a_.model, "a model: " + a_.model.substr(0, a_.model.find(':')) + " workloads have no instructions");
                AMK_TRY(args, loop_args());
                args["model"] = args["model"].get<std::string>() + "#" + a_.op;
                return args;
              },
              search_exit});

  CLI::App* research = app_.add_subcommand("autoresearch", "Long unattended search, resumable; leaves a report");
  search_options(research);
  research->add_option("--minutes", a_.minutes, "Time budget of the campaign")->check(CLI::PositiveNumber)->check(finite_number());
  research->add_option("--iters", a_.iters, "Evaluations of the run, counted over resumptions")->check(CLI::PositiveNumber);
  research->add_flag("--overnight", a_.overnight, "Plateaus do not end it");
  research->add_flag("--reopen", a_.reopen, "Continue a campaign that is done");
  research->footer(
      "Examples:\n"
      "  amk autoresearch llama-3.2-1b --minutes 480 --overnight\n"
      "  amk autoresearch small --gpu rtx5090 --device cpu --iters 200 --seed 3\n"
      "The same call again goes on where it stopped, also after a crash.");
  tool(research, {"amk_autoresearch",
                  [this]() -> Result<Json> {
                    AMK_TRY(args, search_args());
                    if (a_.minutes > 0) AMK_CHECK(put_number(args, "minutes", a_.minutes));
                    if (a_.iters > 0) args["iters"] = a_.iters;
                    args["overnight"] = a_.overnight;
                    args["reopen"] = a_.reopen;
                    return args;
                  },
                  search_exit});
}

void CommandLine::declare_campaigns() {
  CLI::App* orchestrate = app_.add_subcommand("orchestrate", "Campaigns: status, next, record, report");
  orchestrate->require_subcommand(1);
  const auto campaign_args = [this]() -> Result<Json> {
    Json args = Json::object();
    put(args, "campaign", a_.campaign);
    return args;
  };
  for (const auto& [name, about] : {std::pair{"status", "Where a campaign stands"}, std::pair{"next", "Continue or stop, and where the time goes"},
                                    std::pair{"report", "Report; also written under workspace/reports"}}) {
    CLI::App* verb = orchestrate->add_subcommand(name, about);
    verb->add_option("--campaign", a_.campaign, "Campaign id; default: the one active last");
    tool(verb, {std::string("amk_orchestrate_") + name, campaign_args});
  }
  CLI::App* report = app_.add_subcommand("report", "The morning report of a campaign, in markdown, JSON and plots (as orchestrate report)");
  report->add_option("--campaign", a_.campaign, "Campaign id; default: the one active last");
  tool(report, {"amk_orchestrate_report", campaign_args});
  CLI::App* record = orchestrate->add_subcommand("record", "Record an outcome: a claim, or a best backed by a verdict");
  record->add_option("--campaign", a_.campaign, "Campaign id; default: the one active last");
  record->add_option("--status", a_.status, "kept, revert, inconclusive, failed, crash, timeout, rejected or lost")->required();
  record->add_option("--verdict-id", a_.verdict_id, "Evidence from amk eval; required for a best");
  CLI::Option* latency = record->add_option("--latency-us", a_.latency_us, "Claimed latency");
  CLI::Option* pct = record->add_option("--pct-roofline", a_.pct_roofline, "Claimed share of the floor");
  record->add_option("--kind", a_.kind, "What was changed");
  record->add_option("--config", a_.config, "The config that was run: JSON file, -, or text");
  record->add_option("--description", a_.description, "What was tried and why");
  record->add_option("--idempotency-key", a_.idempotency_key, "A retry with the same key returns the first result");
  record->footer("Example:\n  amk orchestrate record --status kept --verdict-id v3-7d5e… --description 'a deeper ring hides the hops'");
  tool(record, {"amk_orchestrate_record", [this, latency, pct]() -> Result<Json> {
                  Json args = {{"status", a_.status}};
                  put(args, "campaign", a_.campaign);
                  put(args, "verdict_id", a_.verdict_id);
                  put(args, "kind", a_.kind);
                  put(args, "description", a_.description);
                  put(args, "idempotency_key", a_.idempotency_key);
                  if (!latency->empty()) AMK_CHECK(put_number(args, "latency_us", a_.latency_us));
                  if (!pct->empty()) AMK_CHECK(put_number(args, "pct_roofline", a_.pct_roofline));
                  if (!a_.config.empty()) {
                    AMK_TRY(config, read_config(a_.config, "--config"));
                    args["config"] = std::move(config);
                  }
                  return args;
                }});

  CLI::App* job = app_.add_subcommand("job", "A long call: state, progress, result; wait or cancel");
  job->add_option("job_id", a_.job_id, "From a call that returned state running")->required();
  job->add_option("--wait", a_.wait_s, "Seconds to wait for the end")->check(CLI::Range(0.0, 50.0))->check(finite_number());
  job->add_flag("--cancel", a_.cancel, "Stop the job; what was measured stays");
  job->footer("Example:\n  amk job j3 --wait 45");
  tool(job, {"amk_job", [this]() -> Result<Json> { return Json{{"job_id", a_.job_id}, {"wait_s", a_.wait_s}, {"cancel", a_.cancel}}; }});
}

int CommandLine::import_rows() {
  std::error_code code;
  Json args = {{"file", std::filesystem::absolute(a_.file, code).string()}};
  put(args, "source", a_.source);
  return finish(call_tool({globals_.workspace, globals_.no_daemon, false}, "amk_results_import", args));
}

void CommandLine::declare_results() {
  CLI::App* results = app_.add_subcommand("results", "Rows of the corpus: filter, sort, page, group, best, diff, export, import");
  results->add_option("--model", a_.model, "Only this workload");
  results->add_option("--gpu", a_.gpu, "Only this GPU target")->default_str("any");
  results->add_option("--campaign", a_.campaign, "Only this campaign");
  results->add_option("--outcome", a_.outcome, "kept, revert, inconclusive, failed, crash, timeout, rejected or lost");
  results->add_option("--kind", a_.latency_kind, "measured-gpu, predicted or foreign");
  results->add_option("--schedule-id", a_.schedule_id, "Only this config");
  results->add_option("--sort", a_.sort, "time, -time, latency_us or -latency_us");
  results->add_option("--limit", a_.limit, "Rows a page, 1 to 200")->capture_default_str();
  results->add_option("--cursor", a_.cursor, "next_cursor of the page before");
  results->add_option("--group", a_.group, "By model, gpu, device_kind, regime or outcome");
  results->add_flag("--best", a_.best, "Best row of every campaign (of --model, --gpu, --campaign)");
  results->add_option("--diff", a_.diff, "Two schedule or experiment ids: what differs, and their ratio, measured in turn where they were")
      ->expected(2);
  CLI::App* importing = results->add_subcommand("import", "Import results.tsv or corpus.jsonl as foreign rows");
  importing->add_option("file", a_.file, "A .tsv or .jsonl file")->required();
  importing->add_option("--source", a_.source, "Where it comes from");
  CLI::App* save = results->add_subcommand("export", "Write all matching rows to a file (.tsv, .csv or .jsonl)");
  save->add_option("file", a_.file, "File to write; its ending names the format")->required();
  results->footer(
      "Examples:\n"
      "  amk results --model toy --outcome kept --sort latency_us --limit 5\n"
      "  amk results --diff e3 e7\n"
      "  amk results export rows.csv");

  const auto filters = [this, results]() -> Result<Json> {
    Json args = Json::object();
    put(args, "model", a_.model.empty() ? "" : absolute_model(a_.model));
    if (results->get_option("--gpu")->count() > 0) args["gpu"] = a_.gpu;
    put(args, "campaign", a_.campaign);
    put(args, "outcome", a_.outcome);
    put(args, "kind", a_.latency_kind);
    put(args, "schedule_id", a_.schedule_id);
    put(args, "sort", a_.sort);
    put(args, "cursor", a_.cursor);
    put(args, "group", a_.group);
    if (results->get_option("--limit")->count() > 0) args["limit"] = a_.limit;
    if (a_.best) args["best"] = true;
    if (!a_.diff.empty()) args["diff"] = a_.diff;
    return args;
  };
  // CLI11 runs the callbacks of a subcommand before its parent's, so the parent must not take over.
  results->callback([this, filters] {
    if (action_) return;
    action_ = [this, filters]() -> int {
      auto args = filters();
      return finish(args ? call_tool({globals_.workspace, globals_.no_daemon, false}, "amk_results", *args) : args);
    };
  });
  importing->callback([this] { action_ = [this] { return import_rows(); }; });
  save->callback([this, filters] {
    action_ = [this, filters]() -> int {
      auto args = filters();
      return finish(args ? export_rows({globals_.workspace, globals_.no_daemon, false}, *args, a_.file) : args);
    };
  });
}

}  // namespace amk::cli
