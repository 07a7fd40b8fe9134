#include "kernels/megakernel/cpu_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/random.h"
#include "core/reference/reference_vm.h"
#include "kernels/megakernel/logit_distance.h"

namespace amk {
namespace {

// The rounding of fp32 sums in another order, in standard deviations of the logits: the bound that the oracle itself is held to against
// transformers. The worst seen over thousands of configs is 5e-6 (docs/reference-vm.md).
constexpr double kRoundingBound = 1e-4;
constexpr double kOracleWork = 4e9;  // multiplications, once a workload
constexpr double kCheckWork = 1e9;   // a judgement
constexpr int kFewestPositions = 12;
constexpr int kMostPositions = 600;
constexpr double kMostLogits = 16e6;  // kept in memory
constexpr int kFromEmpty = 12;        // positions executed from an empty cache …
constexpr int kAtEdge = 3;            // … and around each edge of a KV block

// Sums the comparison of every executed position.
class LogitComparison {
 public:
  explicit LogitComparison(double bound) { c_.bound = bound; }

  void add(int position, std::span<const float> expected, const ReferenceVm::Step& got, const ReferenceVm::Step& repeated) {
    bool finite = true;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double error = std::abs(static_cast<double>(got.logits[i]) - expected[i]);
      finite = finite && std::isfinite(error);
      if (!(error <= c_.max_abs_err)) c_.max_abs_err = std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
      sum_ += error;
    }
    elements_ += static_cast<double>(expected.size());
    c_.kl = finite ? std::max(c_.kl, kl_divergence(expected, got.logits)) : std::numeric_limits<double>::infinity();
    ++c_.positions_checked;
    const bool same_bits =
        std::memcmp(got.logits.data(), repeated.logits.data(), got.logits.size_bytes()) == 0 && got.next_token == repeated.next_token;
    if (!same_bits) repeatable_ = false;
    const int wanted = argmax(expected);
    if (got.next_token == wanted) ++agreeing_;
    const std::string where = " at position " + std::to_string(position);
    if (!finite) fail_once("a logit is not finite: bytes were read that nothing wrote" + where);
    if (c_.max_abs_err > c_.bound) fail_once("logits are off by more than fp32 rounding" + where);
    if (!same_bits) fail_once("two interleavings differ" + where);
    if (got.next_token != argmax(got.logits)) fail_once("the next token is not the largest logit" + where);
    // Where the two largest are closer than twice the bound, rounding may decide.
    if (got.next_token != wanted && top2_gap(expected) > 2 * c_.bound) fail_once("the next token is not the oracle's" + where);
  }

  CpuReference::Outcome outcome() {
    c_.bitwise_repeatable = repeatable_;
    c_.mean_abs_err = sum_ / elements_;
    c_.top1_agreement = static_cast<double>(agreeing_) / static_cast<double>(c_.positions_checked);
    return {c_, failure_.empty(), failure_};
  }

 private:
  void fail_once(std::string why) {
    if (failure_.empty()) failure_ = std::move(why);
  }

  Correctness c_;
  double sum_ = 0, elements_ = 0;
  std::int64_t agreeing_ = 0;
  bool repeatable_ = true;
  std::string failure_;
};

// Of two sequences together.
CpuReference::Outcome worse_of(CpuReference::Outcome a, const CpuReference::Outcome& b, int seq) {
  merge(*a.correctness, *b.correctness);
  if (a.correct && !b.correct) a.failure = "sequence " + std::to_string(seq) + ": " + b.failure;
  a.correct = a.correct && b.correct;
  return a;
}

// Why steps whose tokens the program feeds back differ from the same tokens as a text, in another interleaving; empty: they do not.
Result<std::string> feeds_back(ReferenceVm& vm, ReferenceVm& again, int batch, int steps) {
  vm.reset();
  again.reset();
  const std::size_t n = static_cast<std::size_t>(batch);
  std::vector<int> tokens(n, 0);
  const auto free = vm.launch(tokens, steps);
  if (!free) return free.error().message;
  for (std::size_t at = 0; at + n < free->size(); ++at) tokens.push_back((*free)[at].next_token);
  const auto told = again.launch(tokens, steps);
  if (!told) return told.error().message;
  for (std::size_t at = 0; at < free->size(); ++at) {
    const ReferenceVm::Step &a = (*free)[at], &b = (*told)[at];
    if (a.next_token != b.next_token || std::memcmp(a.logits.data(), b.logits.data(), a.logits.size_bytes()) != 0)
      return "step " + std::to_string(at / n) + " of a launch has other bits with the token fed back than with the same token given";
  }
  return std::string();
}

tl::unexpected<Error> cancelled() { return fail(ErrorKind::Cancelled, "cancelled during the correctness check"); }

}  // namespace

int CpuReference::wanted_positions(int kv_block, int max_seq) { return std::min(max_seq, 2 * kv_block + kAtEdge); }

Result<std::shared_ptr<const CpuReference>> CpuReference::create(std::shared_ptr<const Weights> weights, int wanted, std::uint64_t seed,
                                                                 const std::stop_token& stop) {
  auto reference = std::make_shared<CpuReference>();
  reference->weights_ = weights;
  const ModelSpec& spec = weights->spec();
  const double allowed = std::min(kOracleWork / static_cast<double>(spec.parameters()), kMostLogits / spec.vocab);
  const int positions = std::min(wanted, static_cast<int>(std::clamp<double>(allowed, kFewestPositions, kMostPositions)));
  // Threads cost more than they bring where a step is short.
  constexpr std::int64_t kParallelParameters = 4'000'000;
  auto oracle = std::make_unique<Oracle>(weights, positions, spec.parameters() < kParallelParameters ? 1 : 0);
  Rng rng(seed);
  double sum = 0, squares = 0;
  for (int p = 0; p < positions; ++p) {
    if (stop.stop_requested()) return cancelled();
    reference->tokens_.push_back(static_cast<int>(rng.below(static_cast<std::uint64_t>(spec.vocab))));
    AMK_TRY(logits, oracle->step(reference->tokens_.back()));
    reference->logits_.emplace_back(logits.begin(), logits.end());
    for (float v : logits) {
      sum += v;
      squares += static_cast<double>(v) * v;
    }
  }
  const double n = static_cast<double>(positions) * spec.vocab;
  reference->deviation_ = std::sqrt(std::max(0.0, squares / n - (sum / n) * (sum / n)));
  reference->oracle_ = std::move(oracle);
  return reference;
}

std::vector<CpuReference::Window> CpuReference::windows(const Program& program) const {
  const int last = std::min(positions(), static_cast<int>(program.max_seq));
  const double steps = kCheckWork / (2.0 * static_cast<double>(spec().parameters()));
  const int edge_steps = steps >= 64 ? kAtEdge : 1;
  std::vector<Window> out = {{0, std::min(last, steps >= 64 ? kFromEmpty : kFromEmpty / 2)}};
  // Across the edges at which a second and a third block begin, and at the end of the sequence.
  const int block = program.attention.kv_block;
  for (int begin : {block - 1, 2 * block - 1, last - edge_steps}) {
    const Window window{begin, std::min(last, begin + edge_steps)};
    if (window.begin >= out.back().end && window.begin < window.end) out.push_back(window);
  }
  return out;
}

Status CpuReference::seed(ReferenceVm& vm, int position, int seq) const {
  const auto keys = [this](int layer) { return oracle_->keys(layer); };
  const auto values = [this](int layer) { return oracle_->values(layer); };
  return vm.seed_kv(position, positions(), keys, values, seq);
}

Result<CpuReference::Outcome> CpuReference::check(const Program& program, const Progress& progress) const {
  const std::shared_ptr<const CpuReference> self(std::shared_ptr<void>(), this);  // not owned: it outlives the call
  return check(std::span(&self, 1), program, progress);
}

Result<CpuReference::Outcome> CpuReference::check(std::span<const std::shared_ptr<const CpuReference>> sequences, const Program& program,
                                                  const Progress& progress) {
  const std::size_t batch = sequences.size();
  if (batch != static_cast<std::size_t>(program.batch))
    return bad_field("sequences", batch, "one for each of the program's " + std::to_string(program.batch));
  AMK_TRY(vm, ReferenceVm::create(program, sequences[0]->weights_, {.interleaving_seed = 1}));
  AMK_TRY(again, ReferenceVm::create(program, sequences[0]->weights_, {.interleaving_seed = 2}));
  std::vector<LogitComparison> comparisons;
  for (const auto& s : sequences) comparisons.emplace_back(kRoundingBound * s->deviation_);
  const std::vector<Window> windows = sequences[0]->windows(program);
  const int last = std::min(sequences[0]->positions(), static_cast<int>(program.max_seq));
  for (std::size_t w = 0; w < windows.size(); ++w) {
    const int steps = std::min(windows[w].end - windows[w].begin, batch > 1 ? kFromEmpty / 2 : last);
    // The first sequence takes the windows in turn, each further one the next window, a position later.
    std::vector<int> begins;
    for (std::size_t s = 0; s < batch; ++s) {
      const int begin = windows[(w + s) % windows.size()].begin + static_cast<int>(s);
      begins.push_back(batch == 1 ? windows[w].begin : std::clamp(begin, 0, last - steps));
      AMK_CHECK(sequences[s]->seed(vm, begins[s], static_cast<int>(s)));
      AMK_CHECK(sequences[s]->seed(again, begins[s], static_cast<int>(s)));
    }
    // Steps of one launch, where the program has them: the whole window in one.
    const int in_launch = program.step_sync == StepSync::Persistent ? steps : 1;
    for (int i = 0; i < steps; i += in_launch) {
      if (progress.stop.stop_requested()) return cancelled();
      std::vector<int> tokens;
      for (int j = i; j < i + in_launch; ++j)
        for (std::size_t s = 0; s < batch; ++s) tokens.push_back(sequences[s]->tokens_[static_cast<std::size_t>(begins[s] + j)]);
      const auto step = vm.launch(tokens, in_launch);
      if (!step) return Outcome{std::nullopt, false, step.error().message};
      const auto repeated = again.launch(tokens, in_launch);
      if (!repeated) return Outcome{std::nullopt, false, repeated.error().message};
      for (std::size_t at = 0; at < tokens.size(); ++at) {
        const std::size_t s = at % batch;
        const int position = begins[s] + i + static_cast<int>(at / batch);
        comparisons[s].add(position, sequences[s]->logits_[static_cast<std::size_t>(position)], (*step)[at], (*repeated)[at]);
      }
    }
  }
  if (program.step_sync == StepSync::Persistent) {
    AMK_TRY(fed_back, feeds_back(vm, again, program.batch, std::min(last, kFromEmpty / 2)));
    if (!fed_back.empty()) return Outcome{std::nullopt, false, fed_back};
  }
  Outcome out = comparisons[0].outcome();
  for (std::size_t s = 1; s < batch; ++s) out = worse_of(std::move(out), comparisons[s].outcome(), static_cast<int>(s));
  return out;
}

}  // namespace amk
