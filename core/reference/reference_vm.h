// Executes a lowered program on the CPU by its counters and queues, exactly as the device would: a task runs when it heads its SM's queue
// and its waits hold. Buffers are rounded to their declared dtype on store; arithmetic is fp32.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

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
  Result<Step> step(int token);  // of a batch of one
  // A token for each sequence of the batch, each at its own position; the results in the same order.
  Result<std::vector<Step>> step(std::span<const int> tokens);

  // Several steps of one launch (step_sync: persistent), positions following one another. `tokens`: one a sequence, and the program's argmax is the
  // token of each further step; or [steps][batch], which then take the argmax's place, as when the device decodes a given text. [steps][batch]
  // results, a step's logits as they were when its argmax was taken.
  Result<std::vector<Step>> launch(std::span<const int> tokens, int steps);

  // Programs that are part of a step (core/program/lower_instruction.h): `token`, `logits` and `next_token` may be missing, and step() is then an
  // error. set() fills elements of an input, get() reads elements of any buffer but a weight: rounded to, and widened from, the buffer's dtype.
  // InvalidArgument names an unknown buffer or a range outside it. run() executes once at `position`.
  Status set(std::string_view buffer, std::int64_t first, std::span<const float> values);
  Result<std::vector<float>> get(std::string_view buffer, std::int64_t first, std::int64_t count) const;
  Status run(int position);

  int position(int seq = 0) const;
  void reset();  // all at position 0, epoch kept: counters are never reset

  // Continues sequence `seq` of the batch as one that another decoder began: K and V of positions [0, position) of every layer, fp32
  // [kv_heads][source_max_seq][head_dim] as Oracle::keys and values give them, rounded to the cache's dtype. What lies beyond is poison; the
  // other sequences keep their caches and positions.
  using LayerCache = std::function<std::span<const float>(int layer)>;
  Status seed_kv(int position, int source_max_seq, const LayerCache& keys, const LayerCache& values, int seq = 0);

 private:
  struct State;
  explicit ReferenceVm(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Executes queues, counters and weight streams for two steps (of one launch where the program says so) and checks every task's regions against its
// opcode, without memory, weights or arithmetic: possible for a model of any size. `program` must have passed validate(). Errors as of ReferenceVm.
Status dry_run(const Program& program, std::uint64_t interleaving_seed = 0);

}  // namespace amk
