// Executes a lowered program on the CPU by its counters and queues, exactly as the device would: a task runs when it heads its SM's queue
// and its waits hold. Buffers are rounded to their declared dtype on store; arithmetic is fp32.
#pragma once

#include <memory>
#include <span>

#include "core/base/error.h"
#include "core/program/program.h"

namespace amk {

struct VmOptions {
  std::uint64_t interleaving_seed = 0;  // which ready SM runs next; results must not depend on it
  bool poison = true;                   // fill activations and outputs with NaN before each step, so that reading unwritten bytes shows
};

// Not thread-safe. Keeps the KV cache between steps.
class ReferenceVm {
 public:
  // `program` must have passed validate(); weights must match program.model. Binding errors come back as Result.
  static Result<ReferenceVm> create(const Program& program, std::shared_ptr<const Weights> weights, const VmOptions& options = {});
  ~ReferenceVm();
  ReferenceVm(ReferenceVm&&) noexcept;
  ReferenceVm& operator=(ReferenceVm&&) noexcept;

  struct Step {
    std::span<const float> logits;  // [vocab], valid until the next call
    int next_token = 0;             // the program's argmax
  };
  // Deadlock (no ready SM, queues not empty) is an error that names the starved counters; also token or position out of range.
  Result<Step> step(int token);
  int position() const;
  void reset();  // position 0, epoch kept: counters are never reset

 private:
  struct State;
  explicit ReferenceVm(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace amk
