// What a GPU worker is asked about one candidate, and how its answer is held against what is right: the oracle's logits behind tokens of its own for
// a whole step, the reference VM for one kind of instruction alone. No GPU here. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/once_map.h"
#include "kernels/device_judge.h"
#include "kernels/megakernel/gpu_gate.h"
#include "kernels/megakernel/instruction_workload.h"

namespace amk {

// What a worker's outputs were found to be.
struct OutputsJudged {
  Correctness correctness;
  std::string failure;  // empty: correct
};

// What workloads' outputs are held against, by workload id. The oracle's run takes tens of seconds on all cores: judges of several GPUs share one.
struct GpuReferences {
  using Sequences = std::vector<std::shared_ptr<GpuOracle>>;
  OnceMap<Sequences> whole;
  OnceMap<std::shared_ptr<const InstructionReference>> instructions;
};

// Made by the first to ask, on inputs that no candidate can know; others wait for it. Errors: those of loading weights; Cancelled.
Result<GpuReferences::Sequences> references_of(GpuReferences& all, const MegakernelWorkload& workload, const Progress& progress);
Result<std::shared_ptr<const InstructionReference>> reference_of(GpuReferences& all, const InstructionWorkload& workload, const Progress& progress);

struct GpuQuestion {
  Json check;  // the worker's request without op and config
  std::function<Result<OutputsJudged>(std::span<const float> outputs, const Json& reply)> compare;
  int first = 0, tokens = 1;  // timed positions
  bool flush = false;         // L2, between timed samples: the weights would fit
  Roofline floor;             // of the timed positions
};

// A whole step: the oracle's logits behind its own tokens, of which the last compared ones are new to this question. `steps`: tokens of a launch.
// The oracle runs on a thread of its own, while the worker does; compare() waits for it.
Result<GpuQuestion> gpu_question(GpuReferences& references, const MegakernelWorkload& workload, int steps, std::int64_t l2_bytes,
                                 const Progress& progress);
// One kind alone.
Result<GpuQuestion> gpu_question(GpuReferences& references, const InstructionWorkload& workload, std::int64_t l2_bytes, const Progress& progress);

// Times the last `tokens` of the question's sequence of `total`, as far as it goes.
void time_last(GpuQuestion& asks, const MegakernelWorkload& workload, int total, int tokens);

}  // namespace amk
