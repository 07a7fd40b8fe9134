// Correctness on the CPU: a lowered program on the ReferenceVM against the oracle, from an empty cache and deep in a sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/program/program.h"
#include "core/reference/forward.h"
#include "kernels/family.h"
#include "kernels/megakernel/stand_in.h"

namespace amk {

class ReferenceVm;

// A token sequence that the oracle has decoded, with what it said and the KV cache that it left. Immutable: shared between threads.
class CpuReference {
 public:
  // Decodes `positions`, or as many as a fixed amount of arithmetic allows (at least 12, at most 600). `seed` draws the tokens. Cancelled when
  // `stop` is requested.
  static Result<std::shared_ptr<const CpuReference>> create(std::shared_ptr<const Weights> weights, int positions, std::uint64_t seed,
                                                            const std::stop_token& stop);
  // Positions that a check of programs with these KV blocks would use, work permitting: past the edge at which a third block begins.
  static int wanted_positions(int kv_block, int max_seq);

  struct Outcome {
    std::optional<Correctness> correctness;  // empty: the program could not be executed to the end
    bool correct = false;
    std::string failure;  // why not, for people; empty when correct
  };
  // Runs `program` (lowered for their model) twice, in different interleavings, each sequence of its batch on the tokens of one reference, at
  // positions of its own. An Error means that the machinery failed or was cancelled.
  Result<Outcome> check(const Program& program, const Progress& progress) const;  // a batch of one
  static Result<Outcome> check(std::span<const std::shared_ptr<const CpuReference>> sequences, const Program& program, const Progress& progress);

  const ModelSpec& spec() const { return weights_->spec(); }
  int positions() const { return static_cast<int>(tokens_.size()); }

 private:
  struct Window {
    int begin = 0, end = 0;  // positions that are executed; the cache before them is the oracle's
  };
  std::vector<Window> windows(const Program& program) const;
  Status seed(ReferenceVm& vm, int position, int seq) const;

  std::shared_ptr<const Weights> weights_;
  std::vector<int> tokens_;
  std::vector<std::vector<float>> logits_;  // [position]
  double deviation_ = 0;                    // standard deviation of all of them
  std::unique_ptr<const Oracle> oracle_;    // its cache holds every position
};

}  // namespace amk
