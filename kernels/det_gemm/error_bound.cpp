#include "kernels/det_gemm/error_bound.h"

#include <cmath>
#include <limits>

#include "kernels/det_gemm/bf16.h"

namespace amk::det_gemm {

std::vector<GuardElement> fp64_guard(const Inputs& inputs, const NumericClass& numeric, const Block& block) {
  std::vector<GuardElement> guard(static_cast<std::size_t>(block.rows * block.cols));
  const std::int64_t k = inputs.shape.k;
  const double steps = std::ceil(static_cast<double>(k) / numeric.step.k_step);
  const double chunks = numeric.chunk > 0 ? std::ceil(static_cast<double>(k) / static_cast<double>(numeric.chunk)) : 0;
  const bool bf16 = inputs.shape.out == OutType::Bf16;
  // A term of a k_step-wide step costs 2^-fraction_bits; the final truncation 2^-23.
  const double per_step = (numeric.step.k_step + 1) * std::ldexp(1, -numeric.step.fraction_bits) + std::ldexp(1, -23);
  const auto cols = static_cast<std::size_t>(block.cols);
  std::vector<double> sum(cols), magnitude(cols);
  for (std::int64_t i = 0; i < block.rows; ++i) {
    sum.assign(cols, 0);
    magnitude.assign(cols, 0);
    for (std::int64_t kk = 0; kk < k; ++kk) {
      const double x = bf16_to_float(inputs.x.at(block.row + i, kk));
      for (std::size_t j = 0; j < cols; ++j) {
        const double product = x * bf16_to_float(inputs.y.at(block.col + static_cast<std::int64_t>(j), kk));
        sum[j] += product;
        magnitude[j] += std::fabs(product);
      }
    }
    for (std::size_t j = 0; j < cols; ++j) {
      GuardElement& g = guard[static_cast<std::size_t>(i) * cols + j];
      g.reference = sum[j];
      g.bound = 1.004 * (steps * per_step + chunks * std::ldexp(1, -24)) * magnitude[j] + steps * std::ldexp(1, -149);
      if (bf16) g.bound += std::ldexp(std::fabs(sum[j]), -8) + std::ldexp(1, -133);
      if (!(magnitude[j] < std::ldexp(1, 126))) g.bound = std::numeric_limits<double>::infinity();
    }
  }
  return guard;
}

std::int64_t first_violation(std::span<const GuardElement> guard, std::span<const float> values) {
  for (std::size_t i = 0; i < guard.size(); ++i) {
    if (std::isinf(guard[i].bound)) continue;
    if (!(std::fabs(static_cast<double>(values[i]) - guard[i].reference) <= guard[i].bound)) return static_cast<std::int64_t>(i);
  }
  return -1;
}

}  // namespace amk::det_gemm
