// `amk setup claude|codex`: the client's configuration that starts this amk, printed, or merged into the client's file.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "core/base/error.h"

namespace amk::cli {

struct SetupOptions {
  std::string client;          // "claude", "codex"
  bool write = false;          // merge it into the file
  bool yes = false;            // without asking
  std::filesystem::path file;  // empty: ./.mcp.json; $CODEX_HOME/config.toml, else ~/.codex/config.toml
  std::filesystem::path amk;   // the command to start; empty: this source tree's ./amk, else this program
  // Asks a person; false: no. Empty: there is nobody to ask.
  std::function<bool(const std::string& question)> ask;
};

// {"client", "file", "configuration": text, "changed": whether the file lacks it, "written"}. What is in the file stays. InvalidArgument when the
// file cannot be parsed, when it configures `amk` otherwise (Codex: edit by hand), or when nobody can be asked and `yes` is not given. The file is
// replaced whole or not at all.
Result<Json> setup(const SetupOptions& options);

}  // namespace amk::cli
