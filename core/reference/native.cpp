#include "core/reference/native.h"

#include "core/reference/decoder.h"

namespace amk {

struct NativeForward::State {
  Decoder<Bf16Rounding> decoder;
};

NativeForward::NativeForward(std::shared_ptr<const Weights> weights, int max_seq, int threads)
    : state_(new State{{std::move(weights), max_seq, threads}}) {}
NativeForward::~NativeForward() = default;
NativeForward::NativeForward(NativeForward&&) noexcept = default;
NativeForward& NativeForward::operator=(NativeForward&&) noexcept = default;

int NativeForward::position() const { return state_->decoder.position(); }
Result<std::span<const float>> NativeForward::step(int token) { return state_->decoder.step(token); }
Result<std::vector<std::vector<float>>> NativeForward::feed(std::span<const int> tokens, std::span<const int> wanted) {
  return state_->decoder.feed(tokens, wanted);
}
void NativeForward::reset() { rewind(0); }
void NativeForward::rewind(int position) { state_->decoder.rewind(position); }

}  // namespace amk
