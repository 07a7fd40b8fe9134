// Verbs that run in this process because they need no store: compile and generate.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace amk::cli {

struct CompileOptions {
  std::string model, gpu = "auto", device = "cpu", out;
  Json config = Json::object();
};
// {workload, gpu, schedule_id, artifact: path, bytes, …}: the lowered program (or plan) as JSON, in `out` or ./<schedule_id>.json. device cuda: also
// {cubin, kernel, registers…}, the kernel's machine code for that GPU beside it (megakernel; needs NVRTC, no GPU).
Result<Json> compile(const CompileOptions& options);

struct GenerateOptions {
  std::string model, device = "cpu";
  std::optional<std::string> prompt_ids, prompt;  // one of them; of a batch (MODEL@b4) ids alone, a list for each sequence: "1,2,3;4,5;6;7"
  int max_tokens = 16;
  bool verify = false;
  Json config = Json::object();  // device cuda: the schedule
  std::string logits;            // file for raw little-endian fp32 [tokens processed, vocab]; empty: none
};
Result<Json> generate(const GenerateOptions& options);
// "1,2,3"; spaces around numbers are fine, anything else is not.
Result<std::vector<int>> parse_prompt_ids(const std::string& text);

struct TraceOptions {
  std::string model, out;
  Json config = Json::object();
  int position = 256;
};
// One decode step on the local GPU with timestamps in the kernel: a Chrome/Perfetto trace in `out` or WORKSPACE/traces/<schedule_id>.json, and where
// the token's time went (kernels/megakernel/trace_report.h).
Result<Json> trace(const TraceOptions& options, const std::filesystem::path& workspace);

}  // namespace amk::cli
