#include "server/cli/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace amk::cli {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : " ") + w;
  return out;
}

std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  std::vector<const CLI::App*> out;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!sub->get_group().empty()) out.push_back(sub);  // the nameless group is hidden
  return out;
}

struct Choice {
  std::string name;                 // without dashes
  std::vector<std::string> values;  // known ones
  bool takes_value = false;
  std::string about;
};

std::vector<Choice> options_of(const CLI::App& app, const CompletionWords& words) {
  std::vector<Choice> out;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      Choice c{name, {}, option->get_type_size() != 0, option->get_description()};
      if (name == "gpu") c.values = words.gpus;
      if (name == "model") c.values = words.models;
      if (name == "strategy") c.values = words.strategies;
      if (name == "device") c.values = {"auto", "cuda", "cpu"};
      out.push_back(std::move(c));
    }
  }
  return out;
}

bool takes(const CLI::App& app, std::string_view positional) {
  const auto options = app.get_options();
  return std::any_of(options.begin(), options.end(),
                     [&](const CLI::Option* o) { return o->get_positional() && o->get_name(true).find(positional) != std::string::npos; });
}

// Words of a verb's positionals.
std::vector<std::string> plain_words(const CLI::App& app, const CompletionWords& words) {
  std::vector<std::string> out;
  if (takes(app, "op")) out = words.ops;
  if (takes(app, "model")) out.insert(out.end(), words.models.begin(), words.models.end());
  return out;
}

// One case of the script for `path` ("" is the program itself, "orchestrate next" a verb of a verb), and those below it.
void bash_cases(const CLI::App& app, const std::string& path, const CompletionWords& words, std::string& out) {
  std::vector<std::string> names;
  for (const CLI::App* verb : verbs_of(app)) names.push_back(verb->get_name());
  for (std::string& word : plain_words(app, words)) names.push_back(std::move(word));
  std::vector<std::string> flags;
  std::string values;
  for (const Choice& c : options_of(app, words)) {
    flags.push_back("--" + c.name);
    if (!c.values.empty()) values += "        --" + c.name + ") words='" + joined(c.values) + "'; known=1 ;;\n";
  }
  out += "    '" + path + "')\n      plain='" + joined(names) + "'\n      flags='" + joined(flags) + "'\n";
  if (!values.empty()) out += "      case $previous in\n" + values + "      esac\n";
  out += "      ;;\n";
  for (const CLI::App* verb : verbs_of(app)) bash_cases(*verb, path.empty() ? verb->get_name() : path + " " + verb->get_name(), words, out);
}

std::vector<std::string> paths_of(const CLI::App& app, const std::string& path) {
  std::vector<std::string> out;
  for (const CLI::App* verb : verbs_of(app)) {
    const std::string here = path.empty() ? verb->get_name() : path + " " + verb->get_name();
    out.push_back(here);
    for (std::string& below : paths_of(*verb, here)) out.push_back(std::move(below));
  }
  return out;
}

// Case patterns of several words must be quoted.
std::string quote_patterns(std::string known) {
  std::string out, word;
  for (const char c : known + "|") {
    if (c != '|') {
      word += c;
      continue;
    }
    if (!word.empty()) out += (out.empty() ? "" : "|") + ("'" + word + "'");
    word.clear();
  }
  return out;
}

std::string bash_script(const CLI::App& app, const CompletionWords& words) {
  std::string known;
  for (const std::string& path : paths_of(app, "")) known += "|" + path;
  std::string cases;
  bash_cases(app, "", words, cases);
  return R"(# amk completion for bash: source <(amk completion bash)
_amk() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} path='' word words='' plain='' flags='' known=''
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "${path:+$path }$word" in
      )" +
         quote_patterns(known) + R"() path="${path:+$path }$word" ;;
    esac
  done
  case $path in
)" + cases +
         R"(  esac
  if [ -z "$known" ]; then
    case $current in -*) words=$flags ;; *) words=$plain ;; esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default 2>/dev/null
}
complete -F _amk amk ./amk
)";
}

std::string fish_text(std::string text) {
  std::replace(text.begin(), text.end(), '\'', ' ');
  std::replace(text.begin(), text.end(), '\n', ' ');
  return "'" + text + "'";
}

void fish_lines(const CLI::App& app, const std::string& condition, const CompletionWords& words, std::string& out) {
  for (const CLI::App* verb : verbs_of(app)) {
    out += "complete -c amk -f -n " + fish_text(condition) + " -a " + verb->get_name() + " -d " + fish_text(verb->get_description()) + "\n";
    const std::string inside = "__fish_seen_subcommand_from " + verb->get_name();
    if (const auto plain = plain_words(*verb, words); !plain.empty())
      out += "complete -c amk -f -n " + fish_text(inside) + " -a " + fish_text(joined(plain)) + "\n";
    for (const Choice& c : options_of(*verb, words)) {
      out += "complete -c amk -n " + fish_text(inside) + " -l " + c.name + (c.takes_value ? " -r" : "") + " -d " + fish_text(c.about);
      if (!c.values.empty()) out += " -f -a " + fish_text(joined(c.values));
      out += "\n";
    }
    fish_lines(*verb, inside, words, out);
  }
}

}  // namespace

Result<std::string> completion(const std::string& shell, const CLI::App& app, const CompletionWords& words) {
  // Words with a colon are split by readline: left to be typed.
  CompletionWords usable = words;
  std::erase_if(usable.models, [](const std::string& m) { return m.find(':') != std::string::npos; });
  if (shell == "bash") return bash_script(app, usable);
  if (shell == "zsh")
    return "# amk completion for zsh: source <(amk completion zsh)\nautoload -Uz bashcompinit && bashcompinit\n" + bash_script(app, usable);
  if (shell == "fish") {
    std::string out = "# amk completion for fish: amk completion fish | source\n";
    fish_lines(app, "__fish_use_subcommand", usable, out);
    return out;
  }
  return bad_field("shell", shell, "bash, zsh, fish");
}

}  // namespace amk::cli
