// The bit-exact CPU oracle: what every kernel of a numeric class must return, to the bit. Thread-safe; inputs are only read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/det_gemm/numeric_class.h"
#include "kernels/det_gemm/problem.h"

namespace amk::det_gemm {

struct Inputs {
  Canonical shape;
  Operand x;  // m × k
  Operand y;  // n × k
};

// A rectangle of the output.
struct Block {
  std::int64_t row = 0, col = 0, rows = 0, cols = 0;
  bool operator==(const Block&) const = default;
};

// fp32 bits of the block, row-major [rows][cols], before any rounding to bf16. The class must be one that numeric_class_of() returns,
// possibly chunked; k is padded with +0 to whole steps. Runs on the calling thread.
void oracle_block(const Inputs& inputs, const NumericClass& numeric, const Block& block, std::span<std::uint32_t> out);

// The whole output on `threads` threads (≤ 0: all processors).
std::vector<std::uint32_t> oracle_gemm(const Inputs& inputs, const NumericClass& numeric, int threads = 0);

// The same by the scalar definition alone: the reference of the vectorised path.
std::uint32_t oracle_element(const Inputs& inputs, const NumericClass& numeric, std::int64_t row, std::int64_t col);

// fp32 bits -> bf16 bits, element by element.
std::vector<std::uint16_t> round_to_bf16(std::span<const std::uint32_t> values);

}  // namespace amk::det_gemm
