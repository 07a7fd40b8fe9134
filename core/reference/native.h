// The same forward in PyTorch's native bf16 eager arithmetic: weights and the result of every operator rounded to bf16; fp32 inside
// operators (matrix products, norms before their cast, softmax before its cast). Its error against the oracle, on the same inputs, is
// the tolerance of the correctness gate. Evidence: transformers' bf16 logits in tests/fixtures/hf.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/model/weights.h"

namespace amk {

// As Oracle (forward.h) in use, ownership, errors and repeatability. Logits are bf16 values.
class NativeForward {
 public:
  NativeForward(std::shared_ptr<const Weights> weights, int max_seq, int threads = 0);
  ~NativeForward();
  NativeForward(NativeForward&&) noexcept;
  NativeForward& operator=(NativeForward&&) noexcept;

  int position() const;
  Result<std::span<const float>> step(int token);
  // Processes tokens from position() on, as step() does one by one and with the same bits, but reads each weight once for many of them. Logits of the
  // `wanted` positions: ascending, among those of `tokens`.
  Result<std::vector<std::vector<float>>> feed(std::span<const int> tokens, std::span<const int> wanted);
  void reset();
  void rewind(int position);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace amk
