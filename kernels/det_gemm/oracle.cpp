#include "kernels/det_gemm/oracle.h"

#include <algorithm>
#include <bit>

#include "kernels/det_gemm/bf16.h"
#include "kernels/det_gemm/chain_step.h"
#include "kernels/det_gemm/oracle_tile.h"
#include "kernels/det_gemm/parallel.h"

namespace amk::det_gemm {
namespace {

constexpr std::int64_t kBlockRows = 64, kBlockCols = 64;
constexpr std::int64_t kBlockDepth = 512;  // one packed strip is 64 KiB, one packed row block 128 KiB: both stay in L2

std::uint32_t add_fp32(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t sum = std::bit_cast<std::uint32_t>(std::bit_cast<float>(a) + std::bit_cast<float>(b));
  return is_nan32(sum) ? kCanonicalNan32 : sum;
}

std::uint32_t scalar_chain(const Inputs& in, const ChainStep& step, std::int64_t row, std::int64_t col, std::int64_t begin, std::int64_t end) {
  std::uint32_t accumulator = 0;
  for (std::int64_t k = begin; k < end; k += step.k_step) {
    std::uint16_t a[16] = {}, b[16] = {};
    for (int i = 0; i < step.k_step && k + i < end; ++i) {
      a[i] = in.x.at(row, k + i);
      b[i] = in.y.at(col, k + i);
    }
    accumulator = chain_step(accumulator, a, b, step);
  }
  return accumulator;
}

// Splits the values of one operand for k in [begin, begin + depth), zeros beyond `end`; reports per line whether all were finite.
void split_line(const Operand& operand, std::int64_t line, std::int64_t begin, std::int64_t depth, std::int64_t end, SplitValue* out,
                std::int64_t out_stride, bool& finite) {
  for (std::int64_t k = 0; k < depth; ++k) {
    const std::uint16_t bits = begin + k < end ? operand.at(line, begin + k) : std::uint16_t{0};
    finite = finite && is_finite16(bits);
    out[k * out_stride] = is_finite16(bits) ? split_bf16(bits) : SplitValue{};
  }
}

// One block of at most 64×64 outputs.
class BlockRun {
 public:
  BlockRun(const Inputs& inputs, const NumericClass& numeric, const Block& block) : in_(inputs), numeric_(numeric), block_(block) {
    strips_ = (block.cols + kStripColumns - 1) / kStripColumns;
    const auto lanes = static_cast<std::size_t>(strips_ * block.rows * kStripColumns);
    accumulator_.assign(lanes, 0);
    irregular_.assign(lanes, 0);
    if (numeric.chunk > 0) total_.assign(lanes, 0);
    x_.resize(static_cast<std::size_t>(block.rows * kBlockDepth));
    y_lines_.resize(static_cast<std::size_t>(kStripColumns * kBlockDepth));
    y_significand_.resize(y_lines_.size());
    y_exponent_.resize(y_lines_.size());
    row_finite_.assign(static_cast<std::size_t>(block.rows), 1);
    col_finite_.assign(static_cast<std::size_t>(strips_ * kStripColumns), 1);
  }

  void run(std::span<std::uint32_t> out, std::int64_t out_stride) {
    const std::int64_t k = in_.shape.k, chunk = numeric_.chunk > 0 ? numeric_.chunk : k;
    for (std::int64_t begin = 0; begin < k; begin += chunk) {
      const std::int64_t end = std::min(k, begin + chunk);
      for (std::int64_t at = begin; at < end; at += kBlockDepth) depth_block(at, end);
      if (numeric_.chunk > 0) close_chunk();
    }
    const std::vector<std::uint32_t>& result = numeric_.chunk > 0 ? total_ : accumulator_;
    for (std::int64_t i = 0; i < block_.rows; ++i) {
      for (std::int64_t j = 0; j < block_.cols; ++j) {
        const std::size_t lane = lane_of(i, j);
        const bool regular = row_finite_[static_cast<std::size_t>(i)] && col_finite_[static_cast<std::size_t>(j)] && irregular_[lane] == 0;
        out[static_cast<std::size_t>(i * out_stride + j)] = regular ? result[lane] : oracle_element(in_, numeric_, block_.row + i, block_.col + j);
      }
    }
  }

 private:
  std::size_t lane_of(std::int64_t i, std::int64_t j) const {
    return static_cast<std::size_t>(((j / kStripColumns) * block_.rows + i) * kStripColumns + j % kStripColumns);
  }

  void depth_block(std::int64_t begin, std::int64_t end) {
    const std::int64_t step = numeric_.step.k_step;
    const std::int64_t depth = (std::min(kBlockDepth, end - begin) + step - 1) / step * step;
    for (std::int64_t i = 0; i < block_.rows; ++i) {
      bool finite = row_finite_[static_cast<std::size_t>(i)] != 0;
      split_line(in_.x, block_.row + i, begin, depth, end, x_.data() + i * depth, 1, finite);
      row_finite_[static_cast<std::size_t>(i)] = finite;
    }
    for (std::int64_t strip = 0; strip < strips_; ++strip) {
      const std::int64_t cols = std::min<std::int64_t>(kStripColumns, block_.cols - strip * kStripColumns);
      for (std::int64_t j = 0; j < kStripColumns; ++j) {
        const auto col = static_cast<std::size_t>(strip * kStripColumns + j);
        bool finite = col_finite_[col] != 0;
        if (j < cols)
          split_line(in_.y, block_.col + static_cast<std::int64_t>(col), begin, depth, end, y_lines_.data() + j, kStripColumns, finite);
        else
          for (std::int64_t k = 0; k < depth; ++k) y_lines_[static_cast<std::size_t>(k * kStripColumns + j)] = {};
        col_finite_[col] = finite;
      }
      for (std::size_t i = 0; i < static_cast<std::size_t>(depth * kStripColumns); ++i) {
        y_significand_[i] = y_lines_[i].significand;
        y_exponent_[i] = y_lines_[i].exponent;
      }
      const auto first = static_cast<std::ptrdiff_t>(lane_of(0, strip * kStripColumns));
      run_tile({.x = x_.data(),
                .y_significand = y_significand_.data(),
                .y_exponent = y_exponent_.data(),
                .rows = static_cast<int>(block_.rows),
                .steps = static_cast<int>(depth / step),
                .accumulator = accumulator_.data() + first,
                .irregular = irregular_.data() + first},
               numeric_.step, simd_);
    }
  }

  void close_chunk() {
    for (std::size_t i = 0; i < total_.size(); ++i) {
      if (irregular_[i] == 0) total_[i] = add_fp32(total_[i], accumulator_[i]);
      accumulator_[i] = 0;
    }
  }

  const Inputs& in_;
  const NumericClass& numeric_;
  Block block_;
  Simd simd_ = best_simd();
  std::int64_t strips_ = 0;
  std::vector<std::uint32_t> accumulator_, total_, irregular_;
  std::vector<SplitValue> x_, y_lines_;
  std::vector<std::int32_t> y_significand_, y_exponent_;
  std::vector<char> row_finite_, col_finite_;
};

std::int64_t blocks_of(std::int64_t extent, std::int64_t size) { return (extent + size - 1) / size; }

void sub_block(const Inputs& inputs, const NumericClass& numeric, const Block& block, std::int64_t index, std::span<std::uint32_t> out) {
  const std::int64_t across = blocks_of(block.cols, kBlockCols);
  const std::int64_t r = index / across * kBlockRows, c = index % across * kBlockCols;
  const Block part{block.row + r, block.col + c, std::min(kBlockRows, block.rows - r), std::min(kBlockCols, block.cols - c)};
  BlockRun(inputs, numeric, part).run(out.subspan(static_cast<std::size_t>(r * block.cols + c)), block.cols);
}

}  // namespace

std::uint32_t oracle_element(const Inputs& inputs, const NumericClass& numeric, std::int64_t row, std::int64_t col) {
  if (numeric.chunk == 0) return scalar_chain(inputs, numeric.step, row, col, 0, inputs.shape.k);
  std::uint32_t total = 0;
  for (std::int64_t begin = 0; begin < inputs.shape.k; begin += numeric.chunk) {
    total = add_fp32(total, scalar_chain(inputs, numeric.step, row, col, begin, std::min(inputs.shape.k, begin + numeric.chunk)));
  }
  return total;
}

void oracle_block(const Inputs& inputs, const NumericClass& numeric, const Block& block, std::span<std::uint32_t> out) {
  const std::int64_t count = blocks_of(block.rows, kBlockRows) * blocks_of(block.cols, kBlockCols);
  for (std::int64_t i = 0; i < count; ++i) sub_block(inputs, numeric, block, i, out);
}

std::vector<std::uint32_t> oracle_gemm(const Inputs& inputs, const NumericClass& numeric, int threads) {
  const Block whole{0, 0, inputs.shape.m, inputs.shape.n};
  std::vector<std::uint32_t> out(static_cast<std::size_t>(whole.rows * whole.cols));
  const std::int64_t count = blocks_of(whole.rows, kBlockRows) * blocks_of(whole.cols, kBlockCols);
  parallel_for(count, threads, [&](std::int64_t i) { sub_block(inputs, numeric, whole, i, out); });
  return out;
}

std::vector<std::uint16_t> round_to_bf16(std::span<const std::uint32_t> values) {
  std::vector<std::uint16_t> out(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = float_to_bf16(std::bit_cast<float>(values[i]));
  return out;
}

}  // namespace amk::det_gemm
