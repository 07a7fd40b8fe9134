#include "core/reference/forward.h"

#include "core/reference/decoder.h"

namespace amk {

struct Oracle::State {
  Decoder<Fp32Rounding> decoder;
};

Oracle::Oracle(std::shared_ptr<const Weights> weights, int max_seq, int threads) : state_(new State{{std::move(weights), max_seq, threads}}) {}
Oracle::~Oracle() = default;
Oracle::Oracle(Oracle&&) noexcept = default;
Oracle& Oracle::operator=(Oracle&&) noexcept = default;

const ModelSpec& Oracle::spec() const { return state_->decoder.spec(); }
int Oracle::position() const { return state_->decoder.position(); }
Result<std::span<const float>> Oracle::step(int token) { return state_->decoder.step(token); }
Result<std::vector<std::vector<float>>> Oracle::feed(std::span<const int> tokens, std::span<const int> wanted) {
  return state_->decoder.feed(tokens, wanted);
}
void Oracle::reset() { rewind(0); }
void Oracle::rewind(int position) { state_->decoder.rewind(position); }
std::span<const float> Oracle::keys(int layer) const { return state_->decoder.keys(layer); }
std::span<const float> Oracle::values(int layer) const { return state_->decoder.values(layer); }

int argmax(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best]) best = i;
  return static_cast<int>(best);
}

}  // namespace amk
