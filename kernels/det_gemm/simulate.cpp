#include "kernels/det_gemm/simulate.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/random.h"
#include "kernels/det_gemm/bf16.h"
#include "kernels/det_gemm/chain_step.h"
#include "kernels/det_gemm/error_bound.h"

namespace amk::det_gemm {
namespace {

constexpr std::int64_t kMaxSteps = 400'000;                      // k16 steps of the slow, literal execution: about 0.1 s
constexpr std::int64_t kMaxContraction = std::int64_t{1} << 24;  // a quarter of a second an output, and operands of 32 MB a line

// Rows of an operand that is never held whole: element (line, k) is a function of the seed, normal, or spread over ±8 exponents.
std::vector<std::uint16_t> random_lines(std::int64_t first, std::int64_t count, std::int64_t k, std::uint64_t seed, bool spread) {
  std::vector<std::uint16_t> values(static_cast<std::size_t>(count * k));
  for (std::int64_t i = 0; i < count; ++i) {
    Rng rng(mix64(seed) ^ static_cast<std::uint64_t>(first + i));
    for (std::int64_t kk = 0; kk < k; ++kk) {
      const int shift = spread ? static_cast<int>(rng.below(17)) - 8 : 0;
      values[static_cast<std::size_t>(i * k + kk)] = float_to_bf16(std::ldexp(static_cast<float>(rng.normal()), shift));
    }
  }
  return values;
}

// One output as the kernel computes it: k blocks of tile_k padded with zeros, k16 steps in ascending order, chunk totals in fp32, operands
// in the kernel's roles (a product's factors commute, so swapping them must not matter).
std::uint32_t execute(const Plan& plan, const std::uint16_t* x, const std::uint16_t* y) {
  const ChainStep& step = plan.numeric.step;
  const std::int64_t k = plan.shape.k, block = std::max(plan.config.tile_k, 16), chunk = plan.numeric.chunk;
  const bool padded = plan.config.path != Path::Plain;
  std::uint32_t acc = 0;
  float total = 0;
  for (std::int64_t at = 0; at < k; at += block) {
    const std::int64_t end = padded ? at + block : std::min(at + block, (k + 15) / 16 * 16);
    for (std::int64_t s = at; s < end; s += step.k_step) {
      std::uint16_t a[16] = {}, b[16] = {};
      for (int i = 0; i < step.k_step; ++i) {
        if (s + i >= k) break;
        a[i] = plan.config.swap ? y[s + i] : x[s + i];
        b[i] = plan.config.swap ? x[s + i] : y[s + i];
      }
      acc = chain_step(acc, a, b, step);
    }
    if (chunk > 0 && (end % chunk == 0 || end >= k)) {
      total += std::bit_cast<float>(acc);
      acc = 0;
    }
  }
  const std::uint32_t result = chunk > 0 ? std::bit_cast<std::uint32_t>(total) : acc;
  return plan.shape.out == OutType::Bf16 ? static_cast<std::uint32_t>(float_to_bf16(std::bit_cast<float>(result))) << 16 : result;
}

void compare_sample(const Plan& plan, const Block& sample, std::uint64_t seed, bool spread, Simulated& out, double& err_sum) {
  const std::int64_t k = plan.shape.k;
  const auto x = random_lines(sample.row, sample.rows, k, seed, spread), y = random_lines(sample.col, sample.cols, k, ~seed, spread);
  Canonical small = plan.shape;
  small.m = sample.rows;
  small.n = sample.cols;
  small.x_k_contiguous = small.y_k_contiguous = true;
  const Inputs inputs{small, {x.data(), k, true}, {y.data(), k, true}};
  const Block whole{0, 0, sample.rows, sample.cols};
  std::vector<std::uint32_t> want(static_cast<std::size_t>(sample.rows * sample.cols));
  oracle_block(inputs, plan.numeric, whole, want);
  const auto guard = fp64_guard(inputs, plan.numeric, whole);
  for (std::int64_t i = 0; i < sample.rows; ++i) {
    for (std::int64_t j = 0; j < sample.cols; ++j) {
      const auto at = static_cast<std::size_t>(i * sample.cols + j);
      std::uint32_t expected = want[at];
      if (plan.shape.out == OutType::Bf16) expected = static_cast<std::uint32_t>(float_to_bf16(std::bit_cast<float>(expected))) << 16;
      const std::uint32_t got = execute(plan, x.data() + i * k, y.data() + j * k);
      const double error = std::fabs(static_cast<double>(std::bit_cast<float>(got)) - guard[at].reference);
      ++out.checked;
      out.different += got != expected;
      out.max_abs_err = std::max(out.max_abs_err, error);
      out.bound = std::max(out.bound, guard[at].bound);
      err_sum += error;
      if (!(error <= guard[at].bound) && out.failure.empty()) {
        out.failure = "an output is outside the error bound at row " + std::to_string(sample.row + i) + ", column " + std::to_string(sample.col + j);
      }
    }
  }
}

std::string place(std::int64_t row, std::int64_t col) { return "the tile at row " + std::to_string(row) + ", column " + std::to_string(col); }

}  // namespace

std::string coverage_fault(const Plan& plan) {
  const bool plain = plan.config.path == Path::Plain, swap = plan.config.swap;
  const std::int64_t rows = plain ? 16 : swap ? plan.config.tile_n : plan.config.tile_m;
  const std::int64_t cols = plain ? 8 : swap ? plan.config.tile_m : plan.config.tile_n;
  const std::int64_t across = (plan.shape.n + cols - 1) / cols, down = (plan.shape.m + rows - 1) / rows;
  std::vector<char> seen(static_cast<std::size_t>(across * down), 0);
  for (std::int64_t index = 0; index < plan.tiles_m * plan.tiles_n; ++index) {
    for (int rank = 0; rank < plan.cluster; ++rank) {
      const Block b = tile_of(plan, index, rank);
      if (b.rows <= 0 || b.cols <= 0) continue;
      const bool whole =
          b.row % rows == 0 && b.col % cols == 0 && b.rows == std::min(rows, plan.shape.m - b.row) && b.cols == std::min(cols, plan.shape.n - b.col);
      char& mark = seen[static_cast<std::size_t>(b.row / rows * across + b.col / cols)];
      if (!whole || mark != 0) return place(b.row, b.col) + (whole ? " is computed twice" : " is not a whole tile");
      mark = 1;
    }
  }
  const auto missing = std::find(seen.begin(), seen.end(), 0);
  if (missing == seen.end()) return "";
  const std::int64_t tile = missing - seen.begin();
  return place(tile / across * rows, tile % across * cols) + " is computed by no block";
}

Result<Simulated> simulate(const Plan& plan, std::uint64_t seed, const std::stop_token& stop) {
  Simulated out;
  out.failure = coverage_fault(plan);
  if (!out.failure.empty() || plan.shape.m == 0 || plan.shape.n == 0) return out;

  if (plan.shape.k > kMaxContraction)
    return fail(ErrorKind::Unsupported,
                "a contraction of " + std::to_string(plan.shape.k) + " elements is too long to be checked on a CPU; at most " +
                    std::to_string(kMaxContraction) + ", or a GPU",
                {{"field", "model"}, {"value", plan.shape.k}, {"accepted", "at most " + std::to_string(kMaxContraction)}});
  const std::int64_t steps = std::max<std::int64_t>(1, (plan.shape.k + 15) / 16);
  std::int64_t side = 8;  // of a sample
  while (side > 1 && side * side * steps > kMaxSteps) side /= 2;

  // Samples: the tiles in the output's corners (small outputs have fewer than four), then random ones; those at an edge at that edge.
  Rng rng(seed);
  std::vector<Block> samples;
  const auto sample_tile = [&](const Block& tile) {
    Block s{tile.row, tile.col, std::min<std::int64_t>(tile.rows, side), std::min<std::int64_t>(tile.cols, side)};
    const bool last_row = tile.row + tile.rows == plan.shape.m, last_col = tile.col + tile.cols == plan.shape.n;
    s.row += last_row ? tile.rows - s.rows : static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(tile.rows - s.rows + 1)));
    s.col += last_col ? tile.cols - s.cols : static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(tile.cols - s.cols + 1)));
    samples.push_back(s);
  };
  const std::int64_t tiles = plan.tiles_m * plan.tiles_n;
  for (std::int64_t index = 0; index < tiles; ++index) {
    for (int rank = 0; rank < plan.cluster; ++rank) {
      const Block tile = tile_of(plan, index, rank);
      if (tile.rows <= 0 || tile.cols <= 0) continue;
      const bool row_edge = tile.row == 0 || tile.row + tile.rows == plan.shape.m, col_edge = tile.col == 0 || tile.col + tile.cols == plan.shape.n;
      if (row_edge && col_edge) sample_tile(tile);
    }
  }
  const std::int64_t steps_per_sample = side * side * steps;
  const auto budget = static_cast<std::size_t>(std::clamp<std::int64_t>(kMaxSteps / steps_per_sample, 4, 64));
  while (samples.size() < budget) {
    const Block tile = tile_of(plan, static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(tiles))),
                               static_cast<int>(rng.below(static_cast<std::uint64_t>(plan.cluster))));
    if (tile.rows > 0 && tile.cols > 0) sample_tile(tile);
  }
  double err_sum = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (stop.stop_requested()) return fail(ErrorKind::Cancelled, "cancelled while simulating the plan on the CPU");
    compare_sample(plan, samples[i], seed + i / 2, i % 2 == 1, out, err_sum);
  }
  out.mean_abs_err = err_sum / static_cast<double>(std::max<std::int64_t>(out.checked, 1));
  if (out.different > 0 && out.failure.empty())
    out.failure = std::to_string(out.different) + " of " + std::to_string(out.checked) + " outputs differ in bits from the oracle";
  return out;
}

}  // namespace amk::det_gemm
