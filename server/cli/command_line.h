// The command line: what CLI11 fills in, and how a verb becomes one document on stdout. Verbs that are one tool call: tool_verbs.cpp; verbs that do
// their work in this process: local_verbs.cpp. One thread.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "server/cli/cli.h"
#include "server/cli/dashboard.h"
#include "server/cli/output.h"
#include "server/cli/serve.h"
#include "server/cli/setup.h"

namespace amk::cli {

struct Globals {
  std::string workspace;
  bool no_daemon = false, pretty = false;
};

// Everything that CLI11 fills in. One verb runs, so that verbs may share fields.
struct Arguments {
  std::string worker_cache;
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

// A verb that is one tool call: builds its arguments; `judge_exit` reads the exit code off the result.
struct ToolVerb {
  std::string tool;
  std::function<Result<Json>()> arguments;
  std::function<int(const Json&)> judge_exit = [](const Json&) { return kOk; };
};

// A path means the same to the daemon as to this shell; names (catalogue, org/name, det_gemm:…) stay as they are.
std::string absolute_model(const std::string& model);

// --config: "-" is stdin, text that starts with "{" is the config itself, anything else a file.
Result<Json> read_config(const std::string& source, std::string_view option);

// Leaves out what was not given.
void put(Json& args, const char* key, const std::string& value);

// Neither NaN, which is in every range that CLI11 checks, nor an infinity.
inline CLI::Validator finite_number() {
  return CLI::Validator(
      [](std::string& text) {
        double value = 0;
        return CLI::detail::lexical_cast(text, value) && std::isfinite(value) ? std::string() : text + " is no finite number";
      },
      "");
}

class CommandLine {
 public:
  explicit CommandLine(int stdout_fd) : stdout_fd_(stdout_fd) { declare(); }
  int run(int argc, char** argv);  // the exit code

 private:
  int failed(const Error& error);
  int finish(const Result<Json>& result, const std::function<int(const Json&)>& judge_exit = {});
  void tool(CLI::App* verb, ToolVerb spec);

  void model_options(CLI::App* verb);
  void search_options(CLI::App* verb);
  void loop_options(CLI::App* verb);
  Json model_args();
  Result<Json> search_args();
  Result<Json> loop_args();

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

}  // namespace amk::cli
