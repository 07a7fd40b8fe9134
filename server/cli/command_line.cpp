#include "server/cli/command_line.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "core/base/memory_map.h"
#include "core/base/parse_json.h"
#include "core/base/unexpected.h"
#include "core/schedule/nearest_name.h"
#include "orchestrator/strategy/strategy.h"
#include "server/cli/call.h"
#include "server/tools/app.h"

namespace amk::cli {
namespace {

std::string default_workspace() {
  const char* set = std::getenv("AMK_WORKSPACE");
  return set != nullptr && *set != 0 ? set : "workspace";
}

}  // namespace

namespace {

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App* a) { return !a->get_group().empty(); })) names.push_back(verb->get_name());
  return names;
}

// A word that is none of `known`: what it is, which one was meant, and all of them.
Error unknown_word(const char* field, const std::string& called, const std::string& word, const std::vector<std::string>& known) {
  std::string message = "unknown " + called + " " + word.substr(0, 40), accepted;
  Json data = {{"field", field}, {"value", word}, {"accepted", known}};
  if (const std::string* meant = nearest_name(word, known)) {
    message += "; did you mean " + *meant + "? Accepted: ";
    data["did_you_mean"] = *meant;
  } else {
    message += "; accepted: ";
  }
  for (const std::string& name : known) accepted += (accepted.empty() ? "" : ", ") + name;
  return {ErrorKind::InvalidArgument, message + accepted, data};
}

// The option of `verb`, or of the root, that CLI11 speaks of.
const CLI::Option* option_named(const CLI::App& verb, const CLI::App& root, const std::string& said) {
  for (const CLI::App* app : {&verb, &root})
    for (const CLI::Option* option : app->get_options())
      for (const std::string& name : option->get_lnames()) {
        const std::size_t at = said.find("--" + name), end = at == std::string::npos ? at : at + 2 + name.size();
        if (at != std::string::npos && (end == said.size() || said[end] == ' ' || said[end] == ':')) return option;
      }
  return nullptr;
}

// What CLI11 could not take. Its own words name neither the verb nor what is accepted, and tell several words in an order of their own.
Error wrong_usage(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App* verb = &root;
  std::string path;  // "eval", "orchestrate record"
  while (!verb->get_subcommands().empty()) {
    verb = verb->get_subcommands().front();
    path += (path.empty() ? "" : " ") + verb->get_name();
  }
  const std::vector<std::string> verbs = verb_names(*verb), words = root.remaining(true);
  for (const std::string& word : words) {
    if (!word.starts_with("--")) continue;
    std::vector<std::string> options;
    for (const CLI::App* app : {verb, &root}) {
      for (const CLI::Option* option : app->get_options())
        for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
      if (verb == &root) break;
    }
    return unknown_word("option", path.empty() ? "option" : "option of amk " + path + ":", word.substr(0, word.find('=')), options);
  }
  for (const std::string& word : words)
    if (!word.starts_with("-") && !verbs.empty()) return unknown_word("verb", path.empty() ? "verb" : "verb of amk " + path + ":", word, verbs);
  const std::string more = path.empty() ? " (amk --help lists the verbs)" : " (amk " + path + " --help says more)", said = error.what();
  if (!words.empty())
    return {ErrorKind::InvalidArgument, "one word too many for amk " + path + ": " + words.front().substr(0, 40) + more, {{"value", words.front()}}};
  if (!verbs.empty() && verb != &root && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    std::string accepted;
    for (const std::string& name : verbs) accepted += (accepted.empty() ? "" : ", ") + name;
    return {ErrorKind::InvalidArgument, "amk " + path + " takes one of: " + accepted, {{"field", "verb"}, {"accepted", verbs}}};
  }
  if (const CLI::Option* option = option_named(*verb, root, said)) {
    const std::string name = option->get_name();
    // "Could not convert: --limit = abc"
    const std::size_t value = said.rfind(" = ");
    if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr && value != std::string::npos) {
      const std::string type = option->get_type_name();
      const std::string accepted = (type.starts_with("INT")     ? "a whole number"
                                    : type.starts_with("FLOAT") ? "a number"
                                                                : type) +
                                   ": " + option->get_description();
      return bad_field(name, said.substr(value + 3), accepted).value();
    }
    // "--budget: Value 0 not in range 1 to 100000"; without an upper bound it is the largest double, in 309 digits.
    const std::size_t begin = said.find(": Value "), range = said.find(" not in range "), to = said.rfind(" to ");
    if (begin != std::string::npos && range != std::string::npos && to != std::string::npos && begin < range && range < to) {
      constexpr std::size_t kValue = 8, kRange = 14;
      const std::string low = said.substr(range + kRange, to - range - kRange), high = said.substr(to + 4);
      double least = 0;
      std::from_chars(low.data(), low.data() + low.size(), least);
      const std::string accepted = high.size() < 100 ? low + " to " + high : least > 0 ? "more than 0" : "0 or more";
      return bad_field(name, said.substr(begin + kValue, range - begin - kValue), accepted + ": " + option->get_description()).value();
    }
    // "--diff: 2 required TEXT missing"
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
      return {ErrorKind::InvalidArgument,
              said + "; accepted: " + option->get_description() + more,
              {{"field", name}, {"accepted", option->get_description()}}};
  }
  // "model is required"
  const std::string field = said.substr(0, std::min(said.find(" is required"), said.find(':')));
  return {ErrorKind::InvalidArgument, said + more, field == said ? Json::object() : Json{{"field", field}}};
}

}  // namespace

std::string absolute_model(const std::string& model) {
  std::error_code code;
  const bool looks_like_path = model.starts_with(".") || model.starts_with("/") || model.starts_with("~");
  if (!looks_like_path && model.find('/') == std::string::npos) return model;
  if (!std::filesystem::is_directory(model, code)) return model;
  const auto path = std::filesystem::canonical(model, code);
  return code ? model : path.string();
}

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

void put(Json& args, const char* key, const std::string& value) {
  if (!value.empty()) args[key] = value;
}

int CommandLine::run(int argc, char** argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::string text = app_.help(), path;
    for (CLI::App* sub = &app_; !sub->get_subcommands().empty();) {
      path += (path.empty() ? "" : " ") + (sub == &app_ ? "amk" : sub->get_name());
      sub = sub->get_subcommands().front();
      text = sub->help(path);
    }
    (void)!::write(stdout_fd_, text.data(), text.size());
    return kOk;
  } catch (const CLI::CallForVersion&) {
    return print_document(stdout_fd_, {{"version", version()}}, globals_.pretty) ? kOk : kMachinery;
  } catch (const CLI::ParseError& e) {
    return failed(wrong_usage(app_, e));
  }
  if (!action_) return failed({ErrorKind::InvalidArgument, "no verb; amk --help lists them"});
  try {
    return action_();
  } catch (const std::exception& e) {  // no memory, no thread, a folder that is gone: told as any other failure
    return failed(unexpected_failure("amk", e).value());
  }
}

int CommandLine::failed(const Error& error) {
  std::cerr << "amk: " << error.message << "\n";
  print_document(stdout_fd_, to_json(error), globals_.pretty);
  return exit_code_of(error);
}

int CommandLine::finish(const Result<Json>& result, const std::function<int(const Json&)>& judge_exit) {
  if (!result) return failed(result.error());
  if (const Status whole = mapped_reads_succeeded_since(0); !whole) return failed(whole.error());
  const bool printed = print_document(stdout_fd_, *result, globals_.pretty);
  const int code = judge_exit ? judge_exit(*result) : kOk;
  return printed ? code : kMachinery;
}

void CommandLine::tool(CLI::App* verb, ToolVerb spec) {
  verb->callback([this, spec] {
    action_ = [this, spec]() -> int {
      auto args = spec.arguments();
      if (!args) return failed(args.error());
      return finish(call_tool({globals_.workspace, globals_.no_daemon, a_.detach}, spec.tool, *args), spec.judge_exit);
    };
  });
}

void CommandLine::model_options(CLI::App* verb) {
  verb->add_option("model", a_.model, "Catalogue name, checkpoint folder, org/name, or det_gemm:<op>:<M>x<N>x<K>")->required();
  verb->add_option("--gpu", a_.gpu, "GPU record (amk doctor lists them), or auto: the local GPU, else rtx5090")->capture_default_str();
  verb->add_option("--device", a_.device, "auto, cuda or cpu (cpu predicts the latency)")->capture_default_str();
}

void CommandLine::search_options(CLI::App* verb) {
  model_options(verb);
  std::string strategies;
  for (const std::string& name : strategy_names()) strategies += (strategies.empty() ? "" : ", ") + name;
  verb->add_option("--strategy", a_.strategy, "Search strategy: " + strategies);
  verb->add_option("--seed", a_.seed, "Seed of the search")->capture_default_str()->check(CLI::NonNegativeNumber);
  verb->add_flag("--cold", a_.cold, "Ignore what earlier campaigns taught");
  verb->add_option("--request-key", a_.request_key, "Repeating a call with the same key joins it");
  verb->add_flag("--detach", a_.detach, "Return the job id at once; amk job ID --wait S follows it");
}

Json CommandLine::model_args() { return {{"model", absolute_model(a_.model)}, {"gpu", a_.gpu}, {"device", a_.device}}; }

Result<Json> CommandLine::search_args() {
  Json args = model_args();
  put(args, "strategy", a_.strategy);
  put(args, "request_key", a_.request_key);
  args["seed"] = a_.seed;
  args["cold"] = a_.cold;
  return args;
}

void CommandLine::loop_options(CLI::App* verb) {
  search_options(verb);
  verb->add_option("--budget", a_.budget, "Evaluations to spend")->capture_default_str()->check(CLI::Range(std::int64_t{1}, std::int64_t{100000}));
  verb->add_option("--start-config", a_.start_config, "Config to start from: JSON file, -, or text");
}

Result<Json> CommandLine::loop_args() {
  AMK_TRY(args, search_args());
  args["budget"] = a_.budget;
  if (!a_.start_config.empty()) {
    AMK_TRY(config, read_config(a_.start_config, "--start-config"));
    args["start_config"] = std::move(config);
  }
  return args;
}

void CommandLine::declare() {
  globals_.workspace = default_workspace();
  app_.add_option("--workspace", globals_.workspace, "Store, results.tsv, reports ($AMK_WORKSPACE, else ./workspace)");
  app_.add_flag("--no-daemon", globals_.no_daemon, "Run in this process instead of the workspace's daemon");
  app_.add_flag("--pretty", globals_.pretty, "For people: tables instead of JSON");
  app_.set_version_flag("--version", version());
  app_.require_subcommand(0, 1);
  app_.fallthrough();
  declare_evaluation();
  declare_campaigns();
  declare_results();
  declare_local();
  // Last: a verb that is added takes over the footer that is there.
  app_.footer(
      "Examples:\n"
      "  amk doctor                                         what this machine has\n"
      "  amk eval llama-3.2-1b --gpu h200 --device cpu      one schedule: proved, executed, predicted\n"
      "  amk loop llama-3.2-1b --budget 32                  a search on the local GPU\n"
      "  amk report                                         what came of it, with plots\n"
      "Exit codes: 0 valid and correct, 1 rejected or incorrect, 2 wrong usage, 3 the machinery failed. stdout is one JSON document.");
}

}  // namespace amk::cli
