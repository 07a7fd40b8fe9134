// How far two rows of logits are apart: what the gates of CPU and GPU measure alike. Pure.
#pragma once

#include <span>

#include "kernels/verdict.h"

namespace amk {

// KL(oracle || candidate) of the two softmaxes, in nats; rounding never makes it negative.
double kl_divergence(std::span<const float> oracle, std::span<const float> candidate);

// Gap between the two largest.
double top2_gap(std::span<const float> logits);

// `all` becomes what both together say: the worst of each, means over all positions.
void merge(Correctness& all, const Correctness& more);

}  // namespace amk
