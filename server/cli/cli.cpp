#include "server/cli/cli.h"

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "core/base/json.h"
#include "core/base/parse_json.h"
#include "core/base/resources.h"
#include "core/program/lower_instruction.h"
#include "kernels/registry.h"
#include "kernels/worker.h"
#include "orchestrator/strategy/strategy.h"
#include "server/cli/call.h"
#include "server/cli/completion.h"
#include "server/cli/dashboard.h"
#include "server/cli/output.h"
#include "server/cli/serve.h"
#include "server/cli/setup.h"
#include "server/cli/verbs.h"
#include "server/tools/app.h"
#include "server/tools/fault_injection.h"

namespace amk::cli {
namespace {

struct Globals {
  std::string workspace;
  bool no_daemon = false, pretty = false;
};

std::string default_workspace() {
  const char* set = std::getenv("AMK_WORKSPACE");
  return set != nullptr && *set != 0 ? set : "workspace";
}

// A path means the same to the daemon as to this shell; names (catalogue, org/name, det_gemm:…) stay as they are.
std::string absolute_model(const std::string& model) {
  std::error_code code;
  const bool looks_like_path = model.starts_with(".") || model.starts_with("/") || model.starts_with("~");
  if (!looks_like_path && model.find('/') == std::string::npos) return model;
  if (!std::filesystem::is_directory(model, code)) return model;
  const auto path = std::filesystem::canonical(model, code);
  return code ? model : path.string();
}

// --config: "-" is stdin, text that starts with "{" is the config itself, anything else a file.
Result<Json> read_config(const std::string& source, std::string_view option) {
  std::string text, what;
  if (source.starts_with("{")) {
    text = source;
    what = option;
  } else if (source == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
    what = "stdin";
  } else {
    std::error_code code;
    if (!std::filesystem::is_regular_file(source, code))
      return bad_field(option, source, "a readable JSON file, - for stdin, or the JSON text itself");
    std::ifstream in(source, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(in), {});
    if (!in) return fail(ErrorKind::Io, source + ": cannot be read");
    what = source;
  }
  AMK_TRY(value, parse_json(text, what));
  if (!value.is_object()) return bad_field(option, value, "a JSON object");
  return value;
}

// Everything that CLI11 fills in. One verb runs, so that verbs may share fields.
struct Arguments {
  std::string op, model, gpu = "auto", device = "auto", config, start_config, hypothesis, strategy, request_key, campaign, job_id, file, source;
  std::string status, kind, description, verdict_id, idempotency_key, outcome, latency_kind, schedule_id, sort, cursor, group, out, prompt,
      prompt_ids, logits;
  std::vector<std::string> diff;
  ServeOptions serve;
  DashboardOptions dashboard;
  SetupOptions setup;
  std::string shell;
  std::int64_t budget = 8, iters = 0, seed = 1, limit = 20, max_tokens = 16, position = 256;
  double minutes = 0, wait_s = 0, latency_us = 0, pct_roofline = 0, idle_exit_s = 600;
  bool overnight = false, cold = false, reopen = false, cancel = false, best = false, verify = false, background = false, detach = false;
};

void put(Json& args, const char* key, const std::string& value) {
  if (!value.empty()) args[key] = value;
}

// JSON has no infinities and no NaN: they would travel as null and count as left out.
Status put_number(Json& args, const char* key, double value) {
  if (!std::isfinite(value)) return bad_field(key, std::to_string(value), "a finite number");
  args[key] = value;
  return {};
}

// A verb that is one tool call: builds its arguments; `judge_exit` reads the exit code off the result.
struct ToolVerb {
  std::string tool;
  std::function<Result<Json>()> arguments;
  std::function<int(const Json&)> judge_exit = [](const Json&) { return kOk; };
};

int verdict_exit(const Json& v) {
  if (v.value("valid", false) && v.value("correct", false)) return kOk;
  return v.value("status", "") == "unavailable" ? kMachinery : kNotGood;
}

int search_exit(const Json& r) {
  if (r.contains("state") && r.contains("job_id")) return kOk;  // --detach
  return r.contains("best_verdict") && r["best_verdict"].is_object() ? kOk : kNotGood;
}

class Program {
 public:
  explicit Program(int stdout_fd) : stdout_fd_(stdout_fd) { declare(); }

  int run(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      std::string text = app_.help();
      for (CLI::App* sub = &app_; !sub->get_subcommands().empty();) {
        sub = sub->get_subcommands().front();
        text = sub->help();
      }
      (void)!::write(stdout_fd_, text.data(), text.size());
      return kOk;
    } catch (const CLI::CallForVersion&) {
      return print_document(stdout_fd_, {{"version", version()}}, globals_.pretty) ? kOk : kMachinery;
    } catch (const CLI::ParseError& e) {
      return failed({ErrorKind::InvalidArgument, std::string(e.what()) + " (amk --help lists the verbs, amk VERB --help its options)"});
    }
    if (!action_) return failed({ErrorKind::InvalidArgument, "no verb; amk --help lists them"});
    return action_();
  }

 private:
  int failed(const Error& error) {
    std::cerr << "amk: " << error.message << "\n";
    print_document(stdout_fd_, to_json(error), globals_.pretty);
    return exit_code_of(error);
  }
  int finish(const Result<Json>& result, const std::function<int(const Json&)>& judge_exit = {}) {
    if (!result) return failed(result.error());
    const bool printed = print_document(stdout_fd_, *result, globals_.pretty);
    const int code = judge_exit ? judge_exit(*result) : kOk;
    return printed ? code : kMachinery;
  }

  void tool(CLI::App* verb, ToolVerb spec) {
    verb->callback([this, spec] {
      action_ = [this, spec]() -> int {
        auto args = spec.arguments();
        if (!args) return failed(args.error());
        return finish(call_tool({globals_.workspace, globals_.no_daemon, a_.detach}, spec.tool, *args), spec.judge_exit);
      };
    });
  }

  void model_options(CLI::App* verb) {
    verb->add_option("model", a_.model, "Catalogue name, checkpoint folder, org/name, or det_gemm:<op>:<M>x<N>x<K>")->required();
    verb->add_option("--gpu", a_.gpu, "GPU record, or auto: the local GPU, else rtx5090")->capture_default_str();
    verb->add_option("--device", a_.device, "auto, cuda or cpu (cpu predicts the latency)")->capture_default_str();
  }
  void search_options(CLI::App* verb) {
    model_options(verb);
    verb->add_option("--strategy", a_.strategy, "Search strategy");
    verb->add_option("--seed", a_.seed, "Seed of the search")->capture_default_str()->check(CLI::NonNegativeNumber);
    verb->add_flag("--cold", a_.cold, "Ignore what earlier campaigns taught");
    verb->add_option("--request-key", a_.request_key, "Repeating a call with the same key joins it");
    verb->add_flag("--detach", a_.detach, "Return the job id at once; amk job ID --wait S follows it");
  }
  Json model_args() { return {{"model", absolute_model(a_.model)}, {"gpu", a_.gpu}, {"device", a_.device}}; }
  Result<Json> search_args() {
    Json args = model_args();
    put(args, "strategy", a_.strategy);
    put(args, "request_key", a_.request_key);
    args["seed"] = a_.seed;
    args["cold"] = a_.cold;
    return args;
  }

  void loop_options(CLI::App* verb) {
    search_options(verb);
    verb->add_option("--budget", a_.budget, "Evaluations to spend")->capture_default_str()->check(CLI::Range(std::int64_t{1}, std::int64_t{100000}));
    verb->add_option("--start-config", a_.start_config, "Config to start from: JSON file, -, or text");
  }

  Result<Json> loop_args() {
    AMK_TRY(args, search_args());
    args["budget"] = a_.budget;
    if (!a_.start_config.empty()) {
      AMK_TRY(config, read_config(a_.start_config, "--start-config"));
      args["start_config"] = std::move(config);
    }
    return args;
  }

  void declare();
  void declare_evaluation();
  void declare_campaigns();
  void declare_results();
  void declare_local();
  int import_rows();
  int trace_step();
  int set_up();
  int print_completion();

  int stdout_fd_;
  Globals globals_;
  Arguments a_;
  CLI::App app_{"amk: searches GPU kernel schedules; proves, checks and times every candidate", "amk"};
  std::function<int()> action_;
};

void Program::declare() {
  globals_.workspace = default_workspace();
  app_.add_option("--workspace", globals_.workspace, "Store, results.tsv, reports ($AMK_WORKSPACE, else ./workspace)");
  app_.add_flag("--no-daemon", globals_.no_daemon, "Run in this process instead of the workspace's daemon");
  app_.add_flag("--pretty", globals_.pretty, "For people: tables instead of JSON");
  app_.set_version_flag("--version", version());
  app_.require_subcommand(0, 1);
  app_.fallthrough();
  app_.footer(
      "Examples:\n"
      "  amk doctor                                         what this machine has\n"
      "  amk eval llama-3.2-1b --gpu h200 --device cpu      one schedule: proved, executed, predicted\n"
      "  amk loop llama-3.2-1b --budget 32                  a search on the local GPU\n"
      "  amk report                                         what came of it, with plots\n"
      "Exit codes: 0 valid and correct, 1 rejected or incorrect, 2 wrong usage, 3 the machinery failed. stdout is one JSON document.");
  declare_evaluation();
  declare_campaigns();
  declare_results();
  declare_local();
}

void Program::declare_evaluation() {
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
  research->add_option("--minutes", a_.minutes, "Time budget of the campaign")->check(CLI::PositiveNumber);
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

void Program::declare_campaigns() {
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
  job->add_option("--wait", a_.wait_s, "Seconds to wait for the end")->check(CLI::Range(0.0, 50.0));
  job->add_flag("--cancel", a_.cancel, "Stop the job; what was measured stays");
  tool(job, {"amk_job", [this]() -> Result<Json> { return Json{{"job_id", a_.job_id}, {"wait_s", a_.wait_s}, {"cancel", a_.cancel}}; }});
}

void Program::declare_results() {
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
  results->add_option("--group", a_.group, "By workload, gpu, device_kind, regime or outcome");
  results->add_flag("--best", a_.best, "Best row of every campaign");
  results->add_option("--diff", a_.diff, "Two schedule or experiment ids: what differs, and their ratio")->expected(2);
  CLI::App* import = results->add_subcommand("import", "Import results.tsv or corpus.jsonl as foreign rows");
  import->add_option("file", a_.file, "A .tsv or .jsonl file")->required();
  import->add_option("--source", a_.source, "Where it comes from");
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
    args["limit"] = a_.limit;
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
  import->callback([this] { action_ = [this] { return import_rows();
};
}  // namespace
);
save->callback([this, filters] {
  action_ = [this, filters]() -> int {
    auto args = filters();
    return finish(args ? export_rows({globals_.workspace, globals_.no_daemon, false}, *args, a_.file) : args);
  };
});
}  // namespace amk::cli

int Program::trace_step() {
  TraceOptions options;
  options.model = a_.model;
  options.out = a_.out;
  options.position = static_cast<int>(a_.position);
  if (!a_.config.empty()) {
    auto config = read_config(a_.config, "--config");
    if (!config) return failed(config.error());
    options.config = std::move(*config);
  }
  auto done = trace(options, globals_.workspace);
  if (done && globals_.pretty) std::cerr << (*done)["text"].get<std::string>();
  return finish(done);
}

int Program::set_up() {
  // Only where a person is at both ends.
  if (::isatty(STDIN_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0) {
    a_.setup.ask = [](const std::string& question) {
      std::cerr << question << std::flush;
      std::string answer;
      std::getline(std::cin, answer);
      return answer == "y" || answer == "Y" || answer == "yes";
    };
  }
  return finish(setup(a_.setup));
}

// The one verb whose output is no JSON: a shell reads it.
int Program::print_completion() {
  CompletionWords words{known_workloads(), {}, strategy_names(), {instruction_ops().begin(), instruction_ops().end()}};
  if (const auto resources = find_resources()) words.gpus = gpu_target_names(resources->config() / "gpus");
  words.gpus.push_back("auto");
  const auto script = completion(a_.shell, app_, words);
  if (!script) return failed(script.error());
  return ::write(stdout_fd_, script->data(), script->size()) == static_cast<ssize_t>(script->size()) ? kOk : kMachinery;
}

int Program::import_rows() {
  std::error_code code;
  Json args = {{"file", std::filesystem::absolute(a_.file, code).string()}};
  put(args, "source", a_.source);
  return finish(call_tool({globals_.workspace, globals_.no_daemon, false}, "amk_results_import", args));
}

void Program::declare_local() {
  CLI::App* build = app_.add_subcommand("compile", "Lower a config and write the program (or plan) as JSON");
  model_options(build);
  build->add_option("--config", a_.config, "JSON file, - for stdin, or the JSON text; default: the default config");
  build->add_option("--out", a_.out, "File to write; default ./<schedule_id>.json");
  build->callback([this] {
    action_ = [this]() -> int {
      CompileOptions options{a_.model, a_.gpu, a_.device, a_.out, Json::object()};
      if (!a_.config.empty()) {
        auto config = read_config(a_.config, "--config");
        if (!config) return failed(config.error());
        options.config = std::move(*config);
      }
      return finish(compile(options));
    };
  });

  CLI::App* gen = app_.add_subcommand("generate", "Greedy decode");
  gen->add_option("model", a_.model, "Catalogue name, checkpoint folder or org/name")->required();
  gen->add_option("--prompt-ids", a_.prompt_ids, "Token ids, comma-separated");
  gen->add_option("--prompt", a_.prompt, "Text; needs the checkpoint's tokenizer.json");
  gen->add_option("--max-tokens", a_.max_tokens, "Tokens to generate")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}));
  gen->add_option("--device", a_.device, "cpu or cuda; auto: cuda when there is a GPU")->capture_default_str();
  gen->add_flag("--verify", a_.verify, "Compare with the oracle, token by token");
  gen->add_option("--config", a_.config, "Schedule on a GPU: JSON file, - for stdin, or the JSON text; default: the default config");
  gen->add_option("--logits", a_.logits, "Write raw little-endian fp32 logits [tokens processed, vocab]");
  gen->callback([this, gen] {
    action_ = [this, gen]() -> int {
      GenerateOptions options;
      options.model = a_.model;
      options.device = a_.device;
      if (gen->get_option("--prompt-ids")->count() > 0) options.prompt_ids = a_.prompt_ids;
      if (gen->get_option("--prompt")->count() > 0) options.prompt = a_.prompt;
      options.max_tokens = static_cast<int>(a_.max_tokens);
      options.verify = a_.verify;
      options.logits = a_.logits;
      if (!a_.config.empty()) {
        auto config = read_config(a_.config, "--config");
        if (!config) return failed(config.error());
        options.config = std::move(*config);
      }
      return finish(generate(options), [](const Json& r) { return r.value("verified", true) ? kOk : kNotGood; });
    };
  });

  CLI::App* traced = app_.add_subcommand("trace", "One decode step on the GPU with timestamps: where each microsecond of a token goes");
  traced->add_option("model", a_.model, "Catalogue name, checkpoint folder or org/name")->required();
  traced->add_option("--config", a_.config, "Schedule: JSON file, - for stdin, or the JSON text; default: the default config");
  traced->add_option("--position", a_.position, "Tokens already in the KV cache")->capture_default_str()->check(CLI::NonNegativeNumber);
  traced->add_option("--out", a_.out, "Chrome/Perfetto trace to write; default WORKSPACE/traces/<schedule_id>.json");
  traced->callback([this] { action_ = [this] { return trace_step(); }; });

  // What amk itself starts to run candidates: requests on stdin, replies on stdout.
  app_.add_subcommand("worker", "")->group("")->callback([this] {
    action_ = [this] { return run_gpu_worker(STDIN_FILENO, stdout_fd_, fault_injection().has_value()); };
  });

  CLI::App* serve =
      app_.add_subcommand("serve", "Run the workspace's daemon in the foreground; --http adds MCP over HTTP, --stop ends a running one");
  serve->add_flag("--background", a_.background, "How amk itself starts it");
  serve->add_option("--idle-exit", a_.idle_exit_s, "Exit after so many seconds without client and job; 0: never")->capture_default_str();
  serve->add_option("--http", a_.serve.http, "Serve MCP over HTTP at ADDRESS:PORT (port 0: any free one); prints the address");
  serve->add_option("--http-token", a_.serve.token_file, "File that holds the bearer token, 0600, made if missing; default WORKSPACE/http.token");
  serve->add_flag("--no-token", a_.serve.no_token, "Ask for no token; on loopback only");
  serve->add_flag("--conformance-fixtures", a_.serve.conformance_fixtures, "Serve the conformance suite's test tools as well");
  serve->add_flag("--stop", a_.serve.stop, "End the running daemon of the workspace");
  serve->add_flag("--force", a_.serve.force, "With --stop: even while jobs are running");
  serve->callback([this] {
    action_ = [this]() -> int {
      a_.serve.idle_exit_s = a_.idle_exit_s;
      return serve_daemon(globals_.workspace, a_.serve, stdout_fd_);
    };
  });

  CLI::App* configure =
      app_.add_subcommand("setup", "Configuration with which a coding agent starts this amk; --write merges it into the client's file");
  configure->add_option("client", a_.setup.client, "claude or codex")->required();
  configure->add_flag("--write", a_.setup.write, "Merge it into the file, after asking");
  configure->add_flag("--yes", a_.setup.yes, "Do not ask");
  configure->add_option("--file", a_.setup.file, "The file; default ./.mcp.json, or $CODEX_HOME/config.toml (~/.codex/config.toml)");
  configure->callback([this] { action_ = [this] { return set_up(); }; });

  CLI::App* complete = app_.add_subcommand("completion", "Shell completion: source <(amk completion bash); bash, zsh or fish");
  complete->add_option("shell", a_.shell, "bash, zsh or fish")->required();
  complete->callback([this] { action_ = [this] { return print_completion(); }; });

  CLI::App* page = app_.add_subcommand("dashboard", "Address of a page that follows the campaigns, served by the daemon on loopback");
  page->add_option("--port", a_.dashboard.port, "Port; 0: any free one")->capture_default_str();
  page->add_flag("--open", a_.dashboard.open, "Open it in the desktop's browser");
  page->callback([this] { action_ = [this]() -> int { return finish(dashboard(globals_.workspace, a_.dashboard)); }; });

  CLI::App* mcp = app_.add_subcommand("mcp", "MCP server on stdio: what a coding agent starts");
  mcp->callback([this] { action_ = [this]() -> int { return serve_stdio(globals_.workspace, globals_.no_daemon, stdout_fd_); }; });
}

}  // namespace

int exit_code_of(const Error& error) {
  switch (error.kind) {
    case ErrorKind::InvalidArgument:
    case ErrorKind::NotFound:
    case ErrorKind::Unsupported:
      return kUsage;
    case ErrorKind::Rejected:
      return kNotGood;
    default:
      return kMachinery;
  }
}

int run(int argc, char** argv, int stdout_fd) {
  ::signal(SIGPIPE, SIG_IGN);
  return Program(stdout_fd).run(argc, argv);
}

}  // namespace amk::cli
