// Entries held to the oracle, and batches to the same config's program of one sequence.
#pragma once

#include <memory>
#include <vector>

#include "bench/decode/entry.h"

namespace amk::bench {

// A text, its logits by the oracle, and how far native arithmetic is from them.
struct Reference {
  std::vector<int> tokens;
  std::vector<std::vector<float>> oracle;
  double native_max = 0, native_mean = 0;
  int native_agree = 0;
};

Result<Reference> make_reference(const std::shared_ptr<const Weights>& weights, int tokens, int max_seq, bool native);

// What is found is in the entry; an error is the machinery's.
Status check(GpuModel& model, Entry& e, const Reference& reference);

// Every sequence of a batch, at positions of its own, against what `alone`, the same config's program of one sequence, makes of it; nullptr: only
// that it is repeatable and whole.
Status check_batch(GpuModel& model, Entry& e, Entry* alone, int tokens);

}  // namespace amk::bench
