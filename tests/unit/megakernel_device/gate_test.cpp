// The gate on made-up logits: what native arithmetic would give passes; every kind of wrong output fails.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/random.h"
#include "core/reference/forward.h"
#include "kernels/megakernel/gpu_gate.h"

using namespace amk;

namespace {

constexpr int kVocab = 500, kPositions = 6;

struct Fixture {
  std::vector<std::vector<float>> oracle, native;
  std::shared_ptr<const GpuReference> reference;
  Fixture() {
    Rng rng(7);
    GpuReference::Plan plan;
    plan.tokens = kPositions;
    for (int p = 0; p < kPositions; ++p) {
      plan.positions.push_back(p);
      auto& row = oracle.emplace_back();
      auto& low = native.emplace_back();
      for (int i = 0; i < kVocab; ++i) {
        row.push_back(static_cast<float>(2.0 * rng.normal()));
        low.push_back(row.back() + static_cast<float>(0.01 * rng.normal()));
      }
    }
    reference = GpuReference::of(kVocab, plan, std::vector<int>(kPositions, 1), oracle, native);
  }
  static std::vector<float> flat(const std::vector<std::vector<float>>& rows) {
    std::vector<float> out;
    for (const auto& row : rows) out.insert(out.end(), row.begin(), row.end());
    return out;
  }
  GpuReference::Outcome compare(const std::vector<std::vector<float>>& rows, bool repeated = true) const {
    std::vector<int> next;
    for (const auto& row : rows) next.push_back(argmax(row));
    return reference->compare(flat(rows), next, repeated);
  }
};

}  // namespace

TEST_CASE("gate: the oracle's own logits and native ones pass") {
  const Fixture f;
  const auto exact = f.compare(f.oracle);
  CHECK(exact.correct);
  CHECK(exact.correctness.max_abs_err == 0);
  CHECK(exact.correctness.kl == 0);
  CHECK(exact.correctness.top1_agreement == 1);
  CHECK(exact.correctness.positions_checked == kPositions);
  const auto native = f.compare(f.native);
  CHECK_MESSAGE(native.correct, native.failure);
  // The bound is native's worst error times the margin, computed here again.
  double worst = 0;
  for (int p = 0; p < kPositions; ++p)
    for (int i = 0; i < kVocab; ++i) worst = std::max(worst, std::abs(static_cast<double>(f.native[p][i]) - f.oracle[p][i]));
  CHECK(native.correctness.bound == doctest::Approx(kGateMargin * worst));
  CHECK(native.correctness.max_abs_err == doctest::Approx(worst));
}

TEST_CASE("gate: wrong outputs fail, each with a reason") {
  const Fixture f;
  const auto fails = [&](const char* what, std::vector<std::vector<float>> rows) {
    CAPTURE(what);
    const auto outcome = f.compare(rows);
    CHECK_FALSE(outcome.correct);
    CHECK_FALSE(outcome.failure.empty());
  };
  fails("zeros", std::vector<std::vector<float>>(kPositions, std::vector<float>(kVocab, 0.0f)));
  fails("one position's logits everywhere", std::vector<std::vector<float>>(kPositions, f.oracle[0]));
  {
    auto rows = f.oracle;
    for (auto& row : rows) std::rotate(row.begin(), row.begin() + 1, row.end());
    fails("off by one row", rows);
  }
  {
    auto rows = f.oracle;
    for (auto& row : rows) std::fill(row.end() - 8, row.end(), 0.0f);
    fails("last tile dropped", rows);
  }
  {
    auto rows = f.oracle;
    rows[3][17] = std::numeric_limits<float>::quiet_NaN();
    fails("one NaN", rows);
  }
  {
    auto rows = f.oracle;
    rows[2][5] = std::numeric_limits<float>::infinity();
    fails("one infinity", rows);
  }
  {
    auto rows = f.oracle;
    for (auto& row : rows)
      for (auto& v : row) v *= 1.02f;
    fails("scaled by 2%", rows);
  }
  {
    auto rows = f.oracle;
    rows[5][100] += 0.2f;
    fails("one logit off", rows);
  }
  CHECK_FALSE(f.compare(f.oracle, false).correct);
  // Tokens that are not the logits' largest, and too few logits.
  std::vector<int> wrong(kPositions, 0);
  CHECK_FALSE(f.reference->compare(Fixture::flat(f.oracle), wrong, true).correct);
  auto flat = Fixture::flat(f.oracle);
  flat.pop_back();
  std::vector<int> next;
  for (const auto& row : f.oracle) next.push_back(argmax(row));
  CHECK_FALSE(f.reference->compare(flat, next, true).correct);
}

TEST_CASE("gate: positions start from an empty cache, cover block edges and the last token, and fit the oracle's work") {
  ModelSpec small;
  small.name = "t";
  small.hidden = 64;
  small.intermediate = 128;
  small.layers = 2;
  small.heads = small.kv_heads = 4;
  small.head_dim = 16;
  small.vocab = 100;
  small.max_position = 4096;
  const auto plan = GpuReference::plan(small, 4096, 1);
  CHECK(plan.tokens == 264);
  for (const int p : {0, 1, 63, 64, 65, 127, 128, 255, 256, 263}) CHECK(std::binary_search(plan.positions.begin(), plan.positions.end(), p));
  CHECK(std::is_sorted(plan.positions.begin(), plan.positions.end()));
  const auto short_plan = GpuReference::plan(small, 32, 1);
  CHECK(short_plan.tokens == 32);
  CHECK(short_plan.positions.back() == 31);
  ModelSpec huge = small;
  huge.hidden = 8192;
  huge.intermediate = 28672;
  huge.layers = 80;
  huge.heads = huge.kv_heads = 64;
  huge.head_dim = 128;
  const auto few = GpuReference::plan(huge, 4096, 1);
  CHECK(few.tokens == 264);
  CHECK(few.positions.back() <= 12);
}
