// The parts of verbs that run on this machine's GPU: a worker process of this command's own, under the GPU's lock.
#pragma once

#include <memory>
#include <string>

#include "core/model/tokenizer.h"
#include "core/reference/generate.h"
#include "kernels/megakernel/gpu_judge.h"
#include "server/cli/verbs.h"

namespace amk::cli {

// The first usable GPU, with one model on it.
struct LocalGpu {
  // Unavailable when there is no usable GPU or no NVRTC; errors of the model name the field `model`.
  static Result<LocalGpu> open(const std::string& model);

  GpuDevice device;
  std::shared_ptr<const MegakernelWorkload> workload;
  std::unique_ptr<WorkerLink> link;
  std::unique_ptr<GpuJudge> judge;
};

// Greedy decode with the given schedule, the token fed back on the device. With options.verify the oracle runs the same prompt on the CPU.
Result<Json> generate_on_gpu(LocalGpu& gpu, const GenerateOptions& options, const GenerateRequest& request, const Tokenizer* tokenizer);

// Holds a greedy decode of the GPU against the oracle, token by token behind the same prefix: each id must be the oracle's argmax, or so near to it
// that native bf16 arithmetic could not tell them apart (the gate's rule, kernels/megakernel/gpu_gate.h). Says so in `out`: "verified" and more.
Status verify_against_oracle(const std::shared_ptr<const Weights>& weights, const std::vector<int>& prompt, const std::vector<int>& ids, Json& out);

// Adds the machine code of a megakernel candidate to a finished compile: writes <artifact>.cubin, and its facts into `done`.
Status compile_kernel(const Workload& workload, const Json& canonical, const std::filesystem::path& artifact, Json& done);

}  // namespace amk::cli
