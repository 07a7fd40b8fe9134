// Shell completion, generated from the declared verbs and options, so that it cannot name what is not there.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace CLI {
class App;
}

namespace amk::cli {

// Values that options and positionals take.
struct CompletionWords {
  std::vector<std::string> models, gpus, strategies, ops;
};

// The script of `shell`: bash, zsh or fish (InvalidArgument otherwise). `source <(amk completion bash)`.
Result<std::string> completion(const std::string& shell, const CLI::App& app, const CompletionWords& words);

}  // namespace amk::cli
