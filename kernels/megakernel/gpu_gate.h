// The correctness gate of the GPU, on the parent's side: what was expected never enters the worker. Pure, thread-safe when const.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/model/weights.h"
#include "core/reference/forward.h"
#include "core/reference/native.h"
#include "kernels/verdict.h"

namespace amk {

// One token sequence with the oracle's logits at some positions, and how far native low-precision arithmetic is from them there.
class GpuReference {
 public:
  struct Plan {
    int tokens = 0;              // length of the sequence: the timed positions are its last ones
    std::vector<int> positions;  // ascending, whose logits are compared
  };
  // Positions from an empty cache, around the edges of KV blocks of 64, 128 and 256, and drawn by `seed`, as far as the oracle's work allows.
  // `sequences`: how many share that work.
  static Plan plan(const ModelSpec& spec, int max_seq, std::uint64_t seed, int sequences = 1);

  // Runs the oracle and the native forward once. `seed` draws the tokens.
  static Result<std::shared_ptr<const GpuReference>> create(const std::shared_ptr<const Weights>& weights, const Plan& plan, std::uint64_t seed,
                                                            const std::stop_token& stop);

  // The same reference with other logits at its last positions: what the sequence is when it ends in other tokens.
  std::shared_ptr<const GpuReference> ending(std::vector<int> tokens, std::vector<std::vector<float>> oracle,
                                             const std::vector<std::vector<float>>& native) const;

  const std::vector<int>& tokens() const { return tokens_; }
  const std::vector<int>& positions() const { return plan_.positions; }

  struct Outcome {
    Correctness correctness;
    bool correct = false;
    std::string failure;  // the first reason, for people
  };
  // `logits`: [positions][vocab]. `repeated`: whether the worker saw equal bits twice.
  Outcome compare(std::span<const float> logits, std::span<const int> next_tokens, bool repeated) const;

  // For tests: from given data.
  static std::shared_ptr<const GpuReference> of(int vocab, Plan plan, std::vector<int> tokens, std::vector<std::vector<float>> oracle,
                                                std::vector<std::vector<float>> native);

 private:
  using Logits = std::shared_ptr<const std::vector<float>>;  // references of one sequence share those of its beginning
  void add(std::vector<float> oracle, std::span<const float> native);
  int vocab_ = 0;
  Plan plan_;
  std::vector<int> tokens_;
  std::vector<Logits> oracle_;                  // [position]
  std::vector<double> native_max_, native_kl_;  // [position]
};

// The oracle behind one sequence, kept where the last compared positions begin, so that their tokens can be drawn anew for every judgement at the
// price of those positions alone. Outputs that were right for any earlier judgement are then wrong for this one. Thread-safe: one answer at a time.
class GpuOracle {
 public:
  // As GpuReference::create.
  static Result<std::unique_ptr<GpuOracle>> create(const std::shared_ptr<const Weights>& weights, const GpuReference::Plan& plan, std::uint64_t seed,
                                                   const std::stop_token& stop);
  // As many last tokens as it takes for 16 bits; they are compared, all or their last.
  static int fresh_tokens(int vocab, int reach);

  const std::shared_ptr<const GpuReference>& reference() const { return reference_; }
  // The sequence with new tokens at its last compared positions. What stands behind those is not compared and stays.
  std::vector<int> redraw(std::uint64_t seed) const;
  // What is right for it. `tokens`: of redraw().
  Result<std::shared_ptr<const GpuReference>> answer(std::vector<int> tokens);

 private:
  GpuOracle(const std::shared_ptr<const Weights>& weights, int length) : oracle_(weights, length), native_(weights, length) {}
  std::mutex mutex_;  // of the two
  Oracle oracle_;
  NativeForward native_;
  std::shared_ptr<const GpuReference> reference_;
};

// The gate: at every position max-abs and KL are at most kGateMargin times the worst that native arithmetic shows over the positions; the argmax is
// the oracle's wherever its two best are further apart than twice the bound. The margin covers what differs between two correct orders of rounding.
constexpr double kGateMargin = 1.25;

constexpr int kTimedTokens = 8;  // of a measured launch or chain, from position 256 on where the context is as long

}  // namespace amk
