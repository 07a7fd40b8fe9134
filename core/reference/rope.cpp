// Rotary frequencies, step by step in fp32 as transformers' modeling_rope_utils computes them with torch tensors.
// Formulas: RoFormer (Su et al. 2021, https://arxiv.org/abs/2104.09864); position interpolation (Chen et al. 2023) for linear; llama3 as
// in Meta's Llama 3.1 release: long wavelengths divided by `factor`, short ones kept, a linear blend between.
#include <cassert>
#include <cmath>
#include <numbers>

#include "core/reference/forward.h"

namespace amk {
namespace {

// torch computes scalar / tensor as reciprocal(tensor) * scalar; the roundings matter at large positions.
float divide(float numerator, float denominator) { return (1.0f / denominator) * numerator; }

// Library functions are evaluated in double and rounded once: within half an ulp of fp32, whatever the C library.
float pow_f32(float base, float exponent) { return static_cast<float>(std::pow(static_cast<double>(base), static_cast<double>(exponent))); }

float llama3_scaled(float inv_freq, const RopeSpec& rope) {
  const auto factor = static_cast<float>(rope.factor);
  const double low_wavelength = rope.original_max_position / rope.low_freq_factor;
  const double high_wavelength = rope.original_max_position / rope.high_freq_factor;
  const float wavelength = divide(static_cast<float>(2.0 * std::numbers::pi), inv_freq);
  if (wavelength > static_cast<float>(low_wavelength)) return inv_freq / factor;
  if (wavelength < static_cast<float>(high_wavelength)) return inv_freq;
  const float smooth = (divide(static_cast<float>(rope.original_max_position), wavelength) - static_cast<float>(rope.low_freq_factor)) /
                       static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  return (1.0f - smooth) * inv_freq / factor + smooth * inv_freq;
}

float fp32_inverse_frequency(const ModelSpec& spec, int pair) {
  const float exponent = static_cast<float>(2 * pair) / static_cast<float>(spec.head_dim);
  const float inv_freq = 1.0f / pow_f32(static_cast<float>(spec.rope.theta), exponent);
  switch (spec.rope.scaling) {
    case RopeScaling::None:
      return inv_freq;
    case RopeScaling::Linear:
      return inv_freq / static_cast<float>(spec.rope.factor);
    case RopeScaling::Llama3:
      return llama3_scaled(inv_freq, spec.rope);
  }
  return inv_freq;
}

float inverse_frequency(const ModelSpec& spec, int pair) {
  const float inv_freq = fp32_inverse_frequency(spec, pair);
  switch (spec.rope.inv_freq_dtype) {
    case DType::BF16:
      return bf16_to_f32(f32_to_bf16(inv_freq));
    case DType::F16:
      return f16_to_f32(f32_to_f16(inv_freq));
    default:
      return inv_freq;
  }
}

}  // namespace

void rope_cos_sin(const ModelSpec& spec, int position, std::span<float> cos, std::span<float> sin) {
  assert(static_cast<int>(cos.size()) == spec.head_dim / 2 && cos.size() == sin.size());
  for (std::size_t i = 0; i < cos.size(); ++i) {
    const float angle = inverse_frequency(spec, static_cast<int>(i)) * static_cast<float>(position);
    cos[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
    sin[i] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
}

}  // namespace amk
