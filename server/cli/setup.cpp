#include "server/cli/setup.h"

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/parse_json.h"
#include "core/base/resources.h"

namespace amk::cli {
namespace {

namespace fs = std::filesystem;

fs::path this_amk() {
  std::error_code code;
  if (const auto resources = find_resources()) {
    const fs::path script = resources->root / "amk";
    if (fs::is_regular_file(script, code) && ::access(script.c_str(), X_OK) == 0) return script;
  }
  return fs::read_symlink("/proc/self/exe", code);
}

Result<fs::path> default_file(const std::string& client) {
  if (client == "claude") {
    std::error_code code;
    const fs::path here = fs::current_path(code);
    if (code) return bad_field("file", "", "--file PATH: the current folder is gone");
    return here / ".mcp.json";
  }
  const char* codex = std::getenv("CODEX_HOME");
  if (codex != nullptr && *codex != 0) return fs::path(codex) / "config.toml";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != 0) return fs::path(home) / ".codex" / "config.toml";
  return bad_field("file", "", "--file PATH: neither CODEX_HOME nor HOME is set");
}

Result<std::string> read_if_there(const fs::path& path) {
  std::error_code code;
  if (!fs::exists(path, code)) return std::string();
  if (!fs::is_regular_file(path, code)) return bad_field("file", path.string(), "a regular file, or none yet");
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in) return fail(ErrorKind::Io, path.string() + ": cannot be read");
  return text;
}

Status replace(const fs::path& path, const std::string& text) {
  std::error_code code;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), code);
  return replace_file(path, text, {.keep_mode = true});
}

// A TOML basic string.
std::string quoted(const std::string& text) { return Json(text).dump(); }

// The file's new text; equal to `old` when it has the entry already.
Result<std::string> merged_claude(const std::string& old, const fs::path& file, const Json& server) {
  nlohmann::ordered_json document = nlohmann::ordered_json::object();  // a person's file keeps its order
  if (!old.empty()) {
    AMK_TRY(parsed, parse_json(old, file.string()));
    const auto servers = parsed.is_object() ? parsed.find("mcpServers") : parsed.end();
    if (!parsed.is_object() || (servers != parsed.end() && !servers->is_object()))
      return bad_field("file", file.string(), "a JSON object whose mcpServers is an object");
    if (servers != parsed.end() && servers->contains("amk") && servers->at("amk") == server) return old;
    document = nlohmann::ordered_json::parse(old);
  }
  document["mcpServers"]["amk"] = {{"command", server["command"]}, {"args", server["args"]}};
  return document.dump(2) + "\n";
}

Result<std::string> merged_codex(const std::string& old, const fs::path& file, const std::string& table) {
  if (old.find(table) != std::string::npos) return old;
  // A full parser is not needed to append a table, only to change one: that is left to a person.
  if (old.find("mcp_servers.amk") != std::string::npos)
    return bad_field("file", file.string(), "a file without another [mcp_servers.amk] table: change that one by hand to\n" + table);
  return old + (old.empty() || old.ends_with("\n\n") ? "" : old.ends_with("\n") ? "\n" : "\n\n") + table;
}

}  // namespace

Result<Json> setup(const SetupOptions& options) {
  if (options.client != "claude" && options.client != "codex") return bad_field("client", options.client, "claude, codex");
  const fs::path amk = options.amk.empty() ? this_amk() : options.amk;
  fs::path file = options.file;
  if (file.empty()) {
    AMK_TRY(found, default_file(options.client));
    file = found;
  }
  std::error_code code;
  if (fs::is_symlink(file, code)) file = fs::canonical(file, code);  // what a link points at is replaced, not the link
  const Json server = {{"command", amk.string()}, {"args", {"mcp"}}};
  const std::string table =
      "[mcp_servers.amk]\ncommand = " + quoted(amk.string()) + "\nargs = [\"mcp\"]\nstartup_timeout_sec = 20\ntool_timeout_sec = 120\n";
  AMK_TRY(old, read_if_there(file));
  AMK_TRY(text, options.client == "claude" ? merged_claude(old, file, server) : merged_codex(old, file, table));
  Json out = {{"client", options.client},
              {"file", file.string()},
              {"configuration", options.client == "claude" ? Json{{"mcpServers", {{"amk", server}}}}.dump(2) : table},
              {"changed", text != old},
              {"written", false}};
  if (!options.write || text == old) return out;
  if (!options.yes) {
    if (!options.ask) return bad_field("yes", false, "--yes, as there is no terminal to ask at");
    if (!options.ask("Add amk to " + file.string() + "? [y/N] ")) return out;
  }
  AMK_CHECK(replace(file, text));
  out["written"] = true;
  return out;
}

}  // namespace amk::cli
