// The gate on made-up logits: what native arithmetic would give passes; every kind of wrong output fails.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/random.h"
#include "core/model/load.h"
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

TEST_CASE("gate: new tokens at the end are judged as a whole pass over the sequence would judge them") {
  ModelSources sources;
  sources.catalogue_dir = std::string(AMK_SOURCE_DIR) + "/config/models";
  const auto weights = load_weights(resolve_model("toy", sources).value()).value();
  const int vocab = weights->spec().vocab;  // 256: two tokens are 16 bits
  GpuReference::Plan plan;
  plan.tokens = 12;
  plan.positions = {0, 5, 6, 8};
  auto oracle = GpuOracle::create(weights, plan, 3, {}).value();
  const std::vector<int> base = oracle->reference()->tokens();
  // The whole sequence by decoders of its own, and what compare() says of their logits.
  const auto judged = [&](const GpuReference& reference, const std::vector<int>& tokens) {
    Oracle whole(weights, plan.tokens, 1);
    std::vector<float> rows;
    std::vector<int> next;
    for (int p = 0; p < plan.tokens; ++p) {
      const auto row = whole.step(tokens[static_cast<std::size_t>(p)]).value();
      if (!std::binary_search(plan.positions.begin(), plan.positions.end(), p)) continue;
      rows.insert(rows.end(), row.begin(), row.end());
      next.push_back(argmax(row));
    }
    return reference.compare(rows, next, true);
  };
  CHECK(judged(*oracle->reference(), base).correctness.max_abs_err == 0);
  std::vector<int> before = base;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    const std::vector<int> tokens = oracle->redraw(seed);
    for (std::size_t p = 0; p < base.size(); ++p)
      if (p < 7 || p > 8) CHECK(tokens[p] == base[p]);
    for (const int t : tokens) CHECK((t >= 0 && t < vocab));
    CHECK(tokens != before);
    const auto reference = oracle->answer(tokens).value();
    CHECK(reference->tokens() == tokens);
    CHECK(judged(*reference, tokens).correctness.max_abs_err == 0);
    CHECK(judged(*reference, tokens).correct);
    CHECK_FALSE(judged(*reference, before).correct);
    CHECK_FALSE(judged(*oracle->reference(), tokens).correct);
    // The tolerance is that of the whole sequence's native arithmetic, worst over the positions.
    NativeForward native(weights, plan.tokens, 1);
    Oracle whole(weights, plan.tokens, 1);
    double worst = 0;
    for (int p = 0; p < plan.tokens; ++p) {
      const auto low = native.step(tokens[static_cast<std::size_t>(p)]).value(), exact = whole.step(tokens[static_cast<std::size_t>(p)]).value();
      if (!std::binary_search(plan.positions.begin(), plan.positions.end(), p)) continue;
      for (std::size_t i = 0; i < low.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(low[i]) - exact[i]));
    }
    CHECK(judged(*reference, tokens).correctness.bound == kGateMargin * worst);
    before = tokens;
  }
  CHECK(GpuOracle::fresh_tokens(128256, 100) == 1);
  CHECK(GpuOracle::fresh_tokens(65536, 100) == 1);
  CHECK(GpuOracle::fresh_tokens(49152, 100) == 2);
  CHECK(GpuOracle::fresh_tokens(256, 100) == 2);
  CHECK(GpuOracle::fresh_tokens(255, 100) == 3);
  CHECK(GpuOracle::fresh_tokens(256, 1) == 1);
}
