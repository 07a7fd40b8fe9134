// Verbs that do their work in this process, or serve from it.
#include <unistd.h>

#include <iostream>

#include "core/base/resources.h"
#include "core/program/lower_instruction.h"
#include "kernels/registry.h"
#include "kernels/worker.h"
#include "orchestrator/strategy/strategy.h"
#include "server/cli/command_line.h"
#include "server/cli/completion.h"
#include "server/cli/verbs.h"
#include "server/tools/fault_injection.h"

namespace amk::cli {

int CommandLine::trace_step() {
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

int CommandLine::set_up() {
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
int CommandLine::print_completion() {
  CompletionWords words{known_workloads(), {}, strategy_names(), {instruction_ops().begin(), instruction_ops().end()}};
  if (const auto resources = find_resources()) words.gpus = gpu_target_names(resources->config() / "gpus");
  words.gpus.push_back("auto");
  const auto script = completion(a_.shell, app_, words);
  if (!script) return failed(script.error());
  return ::write(stdout_fd_, script->data(), script->size()) == static_cast<ssize_t>(script->size()) ? kOk : kMachinery;
}

void CommandLine::declare_local() {
  CLI::App* build = app_.add_subcommand("compile", "Lower a config and write the program (or plan) as JSON");
  model_options(build);
  build->add_option("--config", a_.config, "JSON file, - for stdin, or the JSON text; default: the default config");
  build->add_option("--out", a_.out, "File to write; default ./<schedule_id>.json");
  build->footer(
      "Examples:\n"
      "  amk compile toy --gpu h100 --out toy.json                     the program of a GPU that need not be here\n"
      "  amk compile llama-3.2-1b --gpu h200 --device cuda              and its machine code");
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
  gen->add_option("--prompt-ids", a_.prompt_ids, "Token ids, comma-separated; of a batch (MODEL@b4) a list for each sequence: \"1,2,3;4,5;…\"");
  gen->add_option("--prompt", a_.prompt, "Text; needs the checkpoint's tokenizer.json");
  gen->add_option("--max-tokens", a_.max_tokens, "Tokens to generate")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}));
  gen->add_option("--device", a_.device, "cpu or cuda; auto: cuda when there is a GPU")->capture_default_str();
  gen->add_flag("--verify", a_.verify, "Compare with the oracle, token by token");
  gen->add_option("--config", a_.config, "Schedule on a GPU: JSON file, - for stdin, or the JSON text; default: the default config");
  gen->add_option("--logits", a_.logits, "Write raw little-endian fp32 logits [tokens processed, vocab]");
  gen->footer(
      "Examples:\n"
      "  amk generate tests/fixtures/hf/llama-gqa --prompt-ids 1,2,3 --max-tokens 4 --device cpu --verify\n"
      "  amk generate small@b4 --prompt-ids '1,2,3;4,5;6;7,8' --device cuda");
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
  traced->footer("Example:\n  amk trace llama-3.2-1b --out trace.json --pretty");
  traced->callback([this] { action_ = [this] { return trace_step(); }; });

  // What amk itself starts to run candidates: requests on stdin, replies on stdout.
  CLI::App* worker = app_.add_subcommand("worker", "")->group("");
  worker->add_option("--cache", a_.worker_cache, "The one folder that it may write")->required();
  worker->callback([this] { action_ = [this] { return run_gpu_worker(STDIN_FILENO, stdout_fd_, a_.worker_cache, fault_injection().has_value()); }; });

  CLI::App* serve =
      app_.add_subcommand("serve", "Run the workspace's daemon in the foreground; --http adds MCP over HTTP, --stop ends a running one");
  serve->add_flag("--background", a_.background, "How amk itself starts it");
  serve->add_option("--idle-exit", a_.idle_exit_s, "Exit after so many seconds without client and job; 0: never")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->check(finite_number());
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

}  // namespace amk::cli
