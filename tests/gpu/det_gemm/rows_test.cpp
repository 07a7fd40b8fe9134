// Batch invariance: a row has the same bits whatever M, its position, its neighbours, the grid, the config; and order probes.
#include <bit>
#include <cmath>

#include "tests/gpu/det_gemm/cases.h"
#include "tests/gpu/det_gemm/checks.h"

namespace amk::det_gemm::gpu_test {
namespace {

constexpr std::int64_t kN = 264, kK = 328;

enum class Neighbours { Random, Zero, NotANumber, Infinite, Huge };

std::uint16_t neighbour(Neighbours kind, Rng& rng) {
  switch (kind) {
    case Neighbours::Zero:
      return 0;
    case Neighbours::NotANumber:
      return 0x7FC1;
    case Neighbours::Infinite:
      return 0x7F80;
    case Neighbours::Huge:
      return float_to_bf16(1e30f);
    case Neighbours::Random:
      break;
  }
  return float_to_bf16(static_cast<float>(rng.normal()));
}

Operands batch_around(const Operands& row, std::int64_t m, std::int64_t position, Neighbours kind) {
  Operands o;
  o.shape = row.shape;
  o.shape.m = m;
  o.storage = dense_storage(o.shape);
  o.y = row.y;
  Rng rng(static_cast<std::uint64_t>(m * 31 + position));
  o.x.resize(static_cast<std::size_t>(m * kK));
  for (auto& v : o.x) v = neighbour(kind, rng);
  std::copy(row.x.begin(), row.x.end(), o.x.begin() + position * kK);
  return o;
}

}  // namespace

void test_rows(Runner& runner, Checks& checks, const Options& options) {
  const NumericClass numeric = *numeric_class_of(runner.target().sm_major, runner.target().sm_minor);
  const std::vector<std::int64_t> sizes = options.quick
                                              ? std::vector<std::int64_t>{1, 9, 65, 257}
                                              : std::vector<std::int64_t>{1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 129, 255, 257, 1000, 4096};
  for (OutType out : {OutType::Fp32, OutType::Bf16}) {
    for (bool y_k : {true, false}) {
      if (out == OutType::Bf16 && y_k) continue;
      const Operands row = make_operands({.m = 1, .n = kN, .k = kK, .y_k_contiguous = y_k, .out = out}, 17, 3);
      const auto want = expected(row, numeric);
      std::vector<std::pair<Canonical, Storage>> shapes;
      for (const std::int64_t m : sizes) {
        Canonical shape = row.shape;
        shape.m = m;
        shapes.emplace_back(shape, dense_storage(shape));
      }
      prebuild(runner, shapes, few_configs());
      for (const std::int64_t m : sizes) {
        for (const std::int64_t position : {std::int64_t{0}, m / 2, m - 1}) {
          for (Neighbours kind : {Neighbours::Random, Neighbours::Zero, Neighbours::NotANumber, Neighbours::Infinite, Neighbours::Huge}) {
            if (m > 300 && kind != Neighbours::Random && kind != Neighbours::NotANumber) continue;
            const Operands batch = batch_around(row, m, position, kind);
            for (const Config& config : few_configs()) {
              if (config.path == Path::Plain && m > 300) continue;
              if (!make_plan(batch.shape, batch.storage, config, runner.target())) continue;
              const auto got = run_case(runner, batch, config, m % 3 == 0 ? 2 : 0);
              std::size_t wrong = 0;
              for (std::size_t j = 0; got && j < static_cast<std::size_t>(kN); ++j)
                wrong += (*got)[static_cast<std::size_t>(position) * kN + j] != want[j];
              checks.expect(got && wrong == 0, "row " + std::to_string(position) + " of " + std::to_string(m) + " neighbours " +
                                                   std::to_string(static_cast<int>(kind)) + " " + describe(batch.shape, config) + ": " +
                                                   (got ? std::to_string(wrong) + " elements differ" : got.error().message));
            }
          }
        }
      }
    }
  }
}

// +1024 at i, −1024 at j, 2^−15 at l: the result says in which order they met. The oracle's value differs between orders.
void test_order(Runner& runner, Checks& checks, const Options& options) {
  const NumericClass numeric = *numeric_class_of(runner.target().sm_major, runner.target().sm_minor);
  const std::int64_t k = 256, rows = options.quick ? 64 : 1024;
  Operands o = make_operands({.m = rows, .n = 8, .k = k, .out = OutType::Fp32}, 5);
  std::fill(o.x.begin(), o.x.end(), 0);
  std::fill(o.y.begin(), o.y.end(), 0x3F80);
  Rng rng(77);
  int kept = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t at[3];
    do {
      for (auto& p : at) p = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(k)));
    } while (at[0] == at[1] || at[0] == at[2] || at[1] == at[2]);
    auto* line = &o.x[static_cast<std::size_t>(r * k)];
    line[at[0]] = float_to_bf16(1024);
    line[at[1]] = float_to_bf16(-1024);
    line[at[2]] = float_to_bf16(std::ldexp(1.0f, -15));
  }
  const auto want = expected(o, numeric);
  for (const auto bits : want) kept += bits != 0;
  checks.expect(kept > 0 && kept < static_cast<int>(want.size()), "order probes tell orders apart");
  prebuild(runner, {{o.shape, o.storage}}, all_configs());
  for (const Config& config : all_configs()) {
    if (!make_plan(o.shape, o.storage, config, runner.target())) continue;
    const auto got = run_case(runner, o, config);
    checks.expect(got && *got == want, "order probes " + describe(o.shape, config) + (got ? "" : ": " + got.error().message));
  }
}

}  // namespace amk::det_gemm::gpu_test
