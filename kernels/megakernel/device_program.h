// A built program on the GPU: module, tables, counters and activations; and a sequence that it decodes. Needs a current context; one thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/megakernel/device_plan.h"
#include "kernels/megakernel/device_weights.h"

namespace amk {

// What outlives a candidate: tokens, KV cache, logits of each sequence, RoPE table. Guard zones around everything a kernel writes.
class DeviceSequence {
 public:
  static Result<DeviceSequence> create(const ModelSpec& spec, const NumericFormat& format, int max_seq, const cuda::Stream& stream, int batch = 1);

  // Room for the outputs of that many steps of one launch; tokens and caches stay.
  Status hold_steps(int steps, const cuda::Stream& stream);

  // Of one sequence; the next one's follow without a gap. `step`: of the launch; each has a row of every sequence.
  cuda::DevicePtr tokens(int seq = 0) const { return outputs_.pointer() + tokens_at_ + of(seq) * static_cast<std::uint64_t>(max_seq_ + 1) * 4; }
  cuda::DevicePtr next_token(int seq = 0, int step = 0) const { return outputs_.pointer() + next_at_ + row(seq, step) * 4; }
  cuda::DevicePtr logits(int seq = 0, int step = 0) const {
    return outputs_.pointer() + logits_at_ + row(seq, step) * static_cast<std::uint64_t>(spec_.vocab) * 4;
  }
  cuda::DevicePtr kv(int seq = 0) const { return kv_.pointer() + kGuardBytes + of(seq) * static_cast<std::uint64_t>(kv_bytes_); }
  cuda::DevicePtr rope() const { return rope_.pointer(); }
  std::int64_t kv_bytes() const { return kv_bytes_; }  // of one sequence
  int max_seq() const { return max_seq_; }
  int batch() const { return batch_; }
  int steps() const { return steps_; }
  const ModelSpec& spec() const { return spec_; }

  // Sentinels over logits and next_token (NaN with a payload), so that what a step does not write shows.
  Status poison_outputs(const cuda::Stream& stream) const;
  // NaN over the cache's rows from `position` on: reading a row before it is written shows.
  Status poison_kv(const cuda::Stream& stream) const;
  Status set_tokens(std::span<const int> tokens, int first, const cuda::Stream& stream, int seq = 0) const;
  Result<std::vector<float>> read_logits(const cuda::Stream& stream, int seq = 0, int step = 0) const;
  Status read_logits(std::vector<float>& out, const cuda::Stream& stream, int seq = 0, int step = 0) const;  // into memory that is used again
  Result<int> read_next_token(const cuda::Stream& stream, int seq = 0, int step = 0) const;
  Result<std::vector<int>> read_tokens(int first, int count, const cuda::Stream& stream, int seq = 0) const;
  // Bytes of the guard zones that changed since create(); 0 is right.
  Result<std::int64_t> damaged_guards(const cuda::Stream& stream) const;
  // Elements [first, first + …) of a layer's K or V cache of the first sequence, [kv_heads, max_seq, head_dim] as stored. Waits. InvalidArgument
  // outside it.
  Status write_cache(int layer, bool values, std::int64_t first, std::span<const std::byte> bytes, const cuda::Stream& stream) const;
  Result<std::vector<std::byte>> read_cache(int layer, bool values, std::int64_t first, std::int64_t count, const cuda::Stream& stream) const;

 private:
  Result<cuda::DevicePtr> cache_at(int layer, bool values, std::int64_t first, std::int64_t count) const;
  static std::uint64_t of(int n) { return static_cast<std::uint64_t>(n); }
  std::uint64_t token_bytes() const { return of(batch_) * of(max_seq_ + 1) * 4; }
  std::uint64_t row(int seq, int step) const { return of(step) * of(batch_) + of(seq); }
  std::uint64_t next_bytes() const { return row(0, steps_) * 4; }
  std::uint64_t logit_bytes() const { return row(0, steps_) * of(spec_.vocab) * 4; }
  Status allocate_outputs(const cuda::Stream& stream);
  std::int64_t cache_element_bytes() const;
  Status reorder_rows(std::int64_t first, std::span<const std::byte> from, std::span<std::byte> to) const;
  ModelSpec spec_;
  int max_seq_ = 0, batch_ = 1, steps_ = 1;
  cuda::Memory outputs_, kv_, rope_;
  std::uint64_t tokens_at_ = 0, next_at_ = 0, logits_at_ = 0;
  std::int64_t kv_bytes_ = 0;
};

constexpr std::uint32_t kPoisonWord = 0x7fc0dead;  // a quiet NaN that no arithmetic makes
constexpr unsigned char kGuardByte = 0xa5;

struct StepOptions {
  int position = 0;
  bool feed_back = false;  // tokens[position + 1] = argmax
  // A batch whose sequences have positions of their own: one each, and a bit each that says the same as feed_back. Empty: all as above.
  std::vector<int> positions = {};
  unsigned feed_back_each = 0;
  int first_seq = 0;  // which sequence the program's first is: a program of one sequence runs on any
  // Programs of several steps a launch (DevicePlan::steps), for which the two above say nothing. `position` is the first step's; of each sequence it
  // may be below 0 (it repeats position 0 until its turn) and stops at last[s] (where it repeats that).
  int steps = 1;
  std::vector<int> last = {};   // position each sequence stops at; empty: none does
  std::vector<int> given = {};  // tokens each sequence has from the host, behind which the argmax is written; empty: all, or with feed_back those up
                                // to the first position
};

class DeviceProgram {
 public:
  // `program` is kept for messages. Rejected when the compiled kernel does not fit (registers, shared memory, co-residency).
  static Result<DeviceProgram> create(std::shared_ptr<const Program> program, DevicePlan plan, const CompiledKernel& kernel,
                                      const cuda::Context& context, const cuda::Stream& stream);

  // Enqueues one launch: a step, or options.steps. After it, check() before trusting anything.
  Status step(const DeviceWeights& weights, const DeviceSequence& sequence, const StepOptions& options, const cuda::Stream& stream);
  // Waits for the stream; Timeout with the starved task and counter when a launch ran out of its budget (counters are then set anew).
  Status check(const cuda::Stream& stream);

  Status poison_activations(const cuda::Stream& stream) const;
  // The bytes of one vector among activations and given inputs. Waits. InvalidArgument for a buffer that lies elsewhere, or of another size.
  Status write_activation(BufferId buffer, std::span<const std::byte> bytes, const cuda::Stream& stream) const;
  Result<std::vector<std::byte>> read_activation(BufferId buffer, const cuda::Stream& stream) const;
  Result<std::int64_t> damaged_guards(const cuda::Stream& stream) const;
  void set_budget_us(double us) { budget_ns_ = static_cast<std::uint64_t>(us * 1000); }
  const DevicePlan& plan() const { return plan_; }
  const Program& program() const { return *program_; }
  int registers() const { return registers_; }
  int local_bytes() const { return local_bytes_; }
  Status read_trace(std::vector<std::uint64_t>& out, const cuda::Stream& stream) const;

 private:
  Result<cuda::DevicePtr> activation_at(BufferId buffer) const;
  Status make_poison(const cuda::Stream& stream);
  std::shared_ptr<const Program> program_;
  DevicePlan plan_;
  cuda::Module module_;
  cuda::Function function_;
  cuda::Memory tables_, counters_, activations_, report_, trace_;
  cuda::Memory poison_;  // what activations are filled with
  std::uint64_t tasks_at_ = 0, waits_at_ = 0, streams_at_ = 0;
  std::int64_t epoch_ = 0;
  std::uint64_t budget_ns_ = 2'000'000'000;
  int registers_ = 0, local_bytes_ = 0;
};

}  // namespace amk
