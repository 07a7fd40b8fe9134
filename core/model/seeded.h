// Generated weights: a pure function of (spec, seed), the same bits on every machine and for every thread count.
// Element i of a tensor is a 16-bit piece of mix64(key(seed, kind, layer) + i / 4), uniform and scaled per kind so that a random model
// behaves like a trained one where it matters for checking kernels: the residual stream and the logits stay of order one, attention
// prefers some keys, every layer contributes, and greedy decoding does not fall into a fixed point.
#pragma once

#include <memory>

#include "core/base/error.h"
#include "core/model/weights.h"

namespace amk {

// Standard deviation and mean of a kind's elements in the seeded model.
struct SeededScale {
  float mean = 0.0f;
  float deviation = 0.0f;
};
SeededScale seeded_scale(const ModelSpec& spec, WeightKind kind);

// Generates everything at once into memory of its own, `threads` at a time (0 = all cores). Unavailable if memory does not suffice.
Result<std::shared_ptr<const Weights>> generate_weights(const ModelSpec& spec, std::uint64_t seed, int threads = 0);

}  // namespace amk
