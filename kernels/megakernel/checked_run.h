// Poisoned runs of a program over given or fed-back tokens, position by position, and what each step left: the checks of the evaluator's worker, of
// the benchmark and of the tests. Every launch begins with outputs and activations poisoned, the first also with the cache. One thread; each waits
// for the GPU. Errors are those of DeviceProgram::step and check.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/megakernel/gpu_model.h"

namespace amk {

// What one step left of a sequence.
struct StepOutputs {
  std::vector<float> logits;
  int next = 0;
  std::uint64_t hash = 0;
};

// Into memory that is used again. `step`: of the launch.
Status read_step(const GpuModel& model, int seq, int step, StepOutputs& out);

// One sequence of a batch in a check.
struct SequenceRun {
  std::vector<int> tokens;
  std::vector<int> positions;  // ascending, whose logits are kept
  int delay = 0;               // steps
};

// One step's outputs of a sequence.
struct CheckedRun {
  std::vector<std::uint64_t> hashes;  // of the logits, per position
  std::vector<int> next_tokens;
  std::vector<float> logits;  // of the wanted positions
  std::int64_t unwritten = 0, not_finite = 0;
};

// How long a step may take: when each of the first launches took longer, the run ends there. By the host's clock around a launch and its end.
class Patience {
 public:
  explicit Patience(double step_us = 0) : step_us_(step_us) {}  // 0: unlimited
  // Of one launch. True: it was the last that was waited for.
  bool spent(double launch_us, int steps);
  bool lost() const { return lost_; }
  double fastest_us() const { return fastest_us_; }  // step so far

 private:
  static constexpr int kLaunches = 4;
  double step_us_, fastest_us_ = 0;
  int launches_ = 0;
  bool lost_ = false;
};

// A program of one sequence, on any sequence of the model.
Result<CheckedRun> run_checked(GpuModel& model, DeviceProgram& program, std::span<const int> tokens, std::span<const int> positions, int seq = 0,
                               Patience* patience = nullptr);

// Positions [0, count) from one token a sequence (first_token + s), each further one the argmax of the step before, which the device feeds back.
struct FedBack {
  std::vector<std::vector<int>> tokens;            // [sequence][position]
  std::vector<std::vector<std::uint64_t>> hashes;  // of the logits, likewise
  bool followed = true;                            // every token is the argmax that the step before gave
};
Result<FedBack> run_fed_back(GpuModel& model, DeviceProgram& program, int first_token, int count);

// A batch: every sequence has its tokens and starts when `delay` steps have passed; until then it repeats its first position, and behind its end its
// last. `steady`: whatever the others did meanwhile, the repetitions gave the same bits.
struct BatchRun {
  std::vector<CheckedRun> sequences;
  bool steady = true;
};
Result<BatchRun> run_checked_batch(GpuModel& model, DeviceProgram& program, std::span<const SequenceRun> sequences, Patience* patience = nullptr);

}  // namespace amk
