#include "kernels/megakernel/gpu_gate.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <thread>

#include "core/base/number_text.h"
#include "core/base/parallel.h"
#include "core/base/random.h"
#include "core/base/unexpected.h"
#include "kernels/megakernel/logit_distance.h"

namespace amk {
namespace {

constexpr int kTimedFrom = 256;
constexpr double kGateWork = 4e11;  // multiplications of oracle and native forward together, once a workload
constexpr double kFreshBits = 16;   // of the tokens drawn for each judgement: a recorded answer fits one in 65,536
constexpr int kFewestGated = 12, kGatedFromEmpty = 4, kDrawn = 8;

struct Distance {
  double max_abs = 0, sum = 0, kl = 0;
  bool finite = true;
};

Distance distance(std::span<const float> oracle, std::span<const float> other) {
  Distance d;
  for (std::size_t i = 0; i < oracle.size(); ++i) {
    const double e = std::abs(static_cast<double>(other[i]) - oracle[i]);
    if (!std::isfinite(e)) d.finite = false;
    d.max_abs = std::max(d.max_abs, std::isfinite(e) ? e : std::numeric_limits<double>::infinity());
    d.sum += std::isfinite(e) ? e : 0;
  }
  d.kl = d.finite ? kl_divergence(oracle, other) : std::numeric_limits<double>::infinity();
  return d;
}

// Positions [begin, end) of `tokens`, and the logits of those of them that are compared.
template <class Forward>
Result<std::vector<std::vector<float>>> fed(Forward& forward, std::span<const int> tokens, int begin, int end, const std::vector<int>& positions) {
  const auto first = std::lower_bound(positions.begin(), positions.end(), begin), last = std::lower_bound(first, positions.end(), end);
  return forward.feed(tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)), std::span(first, last));
}

double largest(std::span<const double> values) { return values.empty() ? 0.0 : *std::max_element(values.begin(), values.end()); }

}  // namespace

GpuReference::Plan GpuReference::plan(const ModelSpec& spec, int max_seq, std::uint64_t seed, int sequences) {
  Plan plan;
  plan.tokens = std::min(max_seq, kTimedFrom + kTimedTokens);
  const int by_work =
      static_cast<int>(std::clamp(kGateWork / sequences / (2.0 * static_cast<double>(spec.parameters())), static_cast<double>(kFewestGated), 1e6));
  const int reach = std::min(plan.tokens, by_work);
  std::set<int> chosen;
  const auto take = [&](int position) {
    if (position >= 0 && position < reach) chosen.insert(position);
  };
  for (int i = 0; i < kGatedFromEmpty; ++i) take(i);
  for (const int edge : {64, 128, 256}) {
    for (int d = -1; d <= 1; ++d) take(edge + d);
  }
  if (spec.sliding_window) {
    for (int d = -1; d <= 1; ++d) take(*spec.sliding_window + d);
  }
  Rng rng(seed);
  for (int i = 0; i < kDrawn; ++i) take(static_cast<int>(rng.below(static_cast<std::uint64_t>(reach))));
  take(reach - 1);
  plan.positions.assign(chosen.begin(), chosen.end());
  return plan;
}

Result<std::shared_ptr<const GpuReference>> GpuReference::create(const std::shared_ptr<const Weights>& weights, const Plan& plan, std::uint64_t seed,
                                                                 const std::stop_token& stop) {
  AMK_TRY(oracle, GpuOracle::create(weights, plan, seed, stop));
  return oracle->reference();
}

std::shared_ptr<const GpuReference> GpuReference::of(int vocab, Plan plan, std::vector<int> tokens, std::vector<std::vector<float>> oracle,
                                                     std::vector<std::vector<float>> native) {
  auto reference = std::make_shared<GpuReference>();
  reference->vocab_ = vocab;
  reference->plan_ = std::move(plan);
  reference->tokens_ = std::move(tokens);
  for (std::size_t i = 0; i < oracle.size(); ++i) reference->add(std::move(oracle[i]), native[i]);
  return reference;
}

std::shared_ptr<const GpuReference> GpuReference::ending(std::vector<int> tokens, std::vector<std::vector<float>> oracle,
                                                         const std::vector<std::vector<float>>& native) const {
  auto out = std::make_shared<GpuReference>(*this);
  out->tokens_ = std::move(tokens);
  const std::size_t kept = oracle_.size() - std::min(oracle.size(), oracle_.size());
  out->oracle_.resize(kept);
  out->native_max_.resize(kept);
  out->native_kl_.resize(kept);
  for (std::size_t i = 0; i < oracle.size(); ++i) out->add(std::move(oracle[i]), native[i]);
  return out;
}

void GpuReference::add(std::vector<float> oracle, std::span<const float> native) {
  const Distance d = distance(oracle, native);
  native_max_.push_back(d.max_abs);
  native_kl_.push_back(d.kl);
  oracle_.push_back(std::make_shared<const std::vector<float>>(std::move(oracle)));
}

int GpuOracle::fresh_tokens(int vocab, int reach) {
  const double bits = std::log2(static_cast<double>(std::max(2, vocab)));
  return std::min(reach, static_cast<int>(std::ceil(kFreshBits / bits)));
}

Result<std::unique_ptr<GpuOracle>> GpuOracle::create(const std::shared_ptr<const Weights>& weights, const GpuReference::Plan& plan,
                                                     std::uint64_t seed, const std::stop_token& stop) {
  const ModelSpec& spec = weights->spec();
  std::vector<int> tokens;
  Rng rng(mix64(seed));
  for (int i = 0; i < plan.tokens; ++i) tokens.push_back(static_cast<int>(rng.below(static_cast<std::uint64_t>(spec.vocab))));
  const int reach = plan.positions.empty() ? 0 : plan.positions.back() + 1;
  std::unique_ptr<GpuOracle> out(new GpuOracle(weights, std::max(1, reach)));
  using Logits = std::vector<std::vector<float>>;
  const auto run = [&](auto& forward) -> Result<Logits> {
    constexpr int kAtOnce = 64;  // then a look at `stop`
    try {
      Logits all;
      for (int p = 0; p < reach; p += kAtOnce) {
        if (stop.stop_requested()) return fail(ErrorKind::Cancelled, "cancelled while the oracle ran");
        AMK_TRY(some, fed(forward, tokens, p, std::min(reach, p + kAtOnce), plan.positions));
        std::move(some.begin(), some.end(), std::back_inserter(all));
      }
      return all;
    } catch (const std::exception& e) {  // no memory: nothing may leave a thread
      return unexpected_failure("the oracle", e);
    }
  };
  // Side by side: some operators of a small model are too short to keep many cores busy.
  Result<Logits> low = Logits{};
  std::optional<std::jthread> beside;
  try {
    beside.emplace([&] { low = run(out->native_); });
  } catch (const std::exception&) {  // no thread to be had: one after the other
  }
  Result<Logits> expected = run(out->oracle_);
  if (beside)
    beside->join();
  else
    low = run(out->native_);
  if (!expected) return tl::unexpected<Error>(expected.error());
  if (!low) return tl::unexpected<Error>(low.error());
  const int begin = reach - fresh_tokens(spec.vocab, reach);
  out->oracle_.rewind(begin);
  out->native_.rewind(begin);
  out->reference_ = GpuReference::of(spec.vocab, plan, std::move(tokens), std::move(*expected), std::move(*low));
  return out;
}

std::vector<int> GpuOracle::redraw(std::uint64_t seed) const {
  std::vector<int> tokens = reference_->tokens();
  const int vocab = oracle_.spec().vocab, reach = reference_->positions().empty() ? 0 : reference_->positions().back() + 1;
  Rng rng(mix64(seed));
  for (int p = reach - fresh_tokens(vocab, reach); p < reach; ++p)
    tokens[static_cast<std::size_t>(p)] = static_cast<int>(rng.below(static_cast<std::uint64_t>(vocab)));
  return tokens;
}

Result<std::shared_ptr<const GpuReference>> GpuOracle::answer(std::vector<int> tokens) {
  const std::vector<int>& positions = reference_->positions();
  const std::lock_guard one(mutex_);
  const int begin = oracle_.position(), reach = positions.empty() ? 0 : positions.back() + 1;
  auto expected = fed(oracle_, tokens, begin, reach, positions);
  auto low = fed(native_, tokens, begin, reach, positions);
  oracle_.rewind(begin);
  native_.rewind(begin);
  if (!expected) return tl::unexpected<Error>(std::move(expected).error());
  if (!low) return tl::unexpected<Error>(std::move(low).error());
  return reference_->ending(std::move(tokens), std::move(*expected), *low);
}

GpuReference::Outcome GpuReference::compare(std::span<const float> logits, std::span<const int> next_tokens, bool repeated) const {
  Outcome out;
  Correctness& c = out.correctness;
  c.bound = kGateMargin * largest(native_max_);
  c.bitwise_repeatable = repeated;
  const double kl_bound = kGateMargin * largest(native_kl_);
  const auto fail_once = [&](std::string why) {
    if (out.failure.empty()) out.failure = std::move(why);
  };
  if (logits.size() != oracle_.size() * static_cast<std::size_t>(vocab_) || next_tokens.size() != oracle_.size()) {
    fail_once("the worker returned another number of logits than asked for");
    return out;
  }
  struct Seen {
    Distance distance;
    int largest = 0, wanted = 0;
    double gap = 0;  // of the oracle's two best
  };
  std::vector<Seen> seen(oracle_.size());
  const auto count = static_cast<std::int64_t>(seen.size());
  ThreadPool(static_cast<int>(std::min<std::int64_t>(count, resolve_threads(0)))).for_ranges(count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const std::span<const float> got = logits.subspan(i * static_cast<std::size_t>(vocab_), static_cast<std::size_t>(vocab_));
      const std::vector<float>& expected = *oracle_[i];
      seen[i] = {distance(expected, got), argmax(got), argmax(expected), top2_gap(expected)};
    }
  });
  double sum = 0;
  std::int64_t agreeing = 0;
  for (std::size_t i = 0; i < oracle_.size(); ++i) {
    const std::string where = " at position " + std::to_string(plan_.positions[i]);
    const Distance& d = seen[i].distance;
    c.max_abs_err = std::max(c.max_abs_err, d.max_abs);
    c.kl = std::max(c.kl, d.kl);
    sum += d.sum;
    ++c.positions_checked;
    if (!d.finite) fail_once("a logit is not a number: it was not written, or something unwritten was read," + where);
    if (d.max_abs > c.bound)
      fail_once("logits are off by " + with_digits(d.max_abs, 4) + ", more than " + with_digits(c.bound, 4) + " (native arithmetic with margin)," +
                where);
    if (d.kl > kl_bound)
      fail_once("the distribution is off by KL " + with_digits(d.kl, 4) + ", more than " + with_digits(kl_bound, 4) +
                " (native arithmetic with margin)," + where);
    const int wanted = seen[i].wanted;
    if (next_tokens[i] == wanted) ++agreeing;
    if (next_tokens[i] != seen[i].largest) fail_once("the next token is not the largest logit" + where);
    if (next_tokens[i] != wanted && seen[i].gap > 2 * c.bound) fail_once("the next token is not the oracle's" + where);
  }
  c.mean_abs_err = sum / (static_cast<double>(oracle_.size()) * vocab_);
  c.top1_agreement = static_cast<double>(agreeing) / static_cast<double>(oracle_.size());
  if (!repeated) fail_once("two runs on the same inputs differ");
  out.correct = out.failure.empty();
  return out;
}

}  // namespace amk
