// The oracle: a plain eager fp32 forward pass with a KV cache, from the same weights that candidates use.
// It shares no code with the lowering or the ReferenceVM. Its own evidence: transformers' logits (tests/fixtures/hf).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/model/weights.h"

namespace amk {

// One sequence. Not thread-safe; uses `threads` workers inside a call (0 = all cores). Bitwise repeatable for any thread count.
class Oracle {
 public:
  Oracle(std::shared_ptr<const Weights> weights, int max_seq, int threads = 0);
  ~Oracle();
  Oracle(Oracle&&) noexcept;
  Oracle& operator=(Oracle&&) noexcept;

  const ModelSpec& spec() const;
  int position() const;  // tokens processed so far
  // Processes one token at position(); returns logits [vocab], valid until the next call.
  // Errors: token outside [0, vocab), position() == max_seq.
  Result<std::span<const float>> step(int token);
  // Processes tokens from position() on, as step() does one by one and with the same bits, but reads each weight once for many of them. Logits of the
  // `wanted` positions: ascending, among those of `tokens`.
  Result<std::vector<std::vector<float>>> feed(std::span<const int> tokens, std::span<const int> wanted);
  void reset();  // position() = 0
  // Back to an earlier position: what was processed before it stays. The helper threads end, until the next step.
  void rewind(int position);

  // The KV cache behind position(), for tests and for seeding a candidate: fp32 [kv_heads][max_seq][head_dim] of one layer.
  std::span<const float> keys(int layer) const;
  std::span<const float> values(int layer) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

int argmax(std::span<const float> logits);  // the lowest index among equals

// cos and sin of RoPE at one position, [head_dim / 2] each, in fp32 as transformers computes them (inverse frequencies in fp32,
// scaled per spec.rope). The one definition of RoPE: the oracle, the VM's tables and the device tables all come from here.
void rope_cos_sin(const ModelSpec& spec, int position, std::span<float> cos, std::span<float> sin);

}  // namespace amk
