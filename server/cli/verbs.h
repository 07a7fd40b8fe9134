// Verbs that run in this process because they need no store: compile and generate.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace amk::cli {

struct CompileOptions {
  std::string model, gpu = "auto", out;
  Json config = Json::object();
};
// {workload, gpu, schedule_id, artifact: path, bytes, …}: the lowered program (or plan) as JSON, in `out` or ./<schedule_id>.json.
Result<Json> compile(const CompileOptions& options);

struct GenerateOptions {
  std::string model, device = "cpu";
  std::optional<std::string> prompt_ids, prompt;  // one of them
  int max_tokens = 16;
  bool verify = false;
  std::string logits;  // file for raw little-endian fp32 [tokens processed, vocab]; empty: none
};
Result<Json> generate(const GenerateOptions& options);

}  // namespace amk::cli
