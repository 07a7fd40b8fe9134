// How far two rows of logits are apart: what the gates of CPU and GPU measure alike. Pure.
#pragma once

#include <span>

namespace amk {

// KL(oracle || candidate) of the two softmaxes, in nats; rounding never makes it negative.
double kl_divergence(std::span<const float> oracle, std::span<const float> candidate);

// Gap between the two largest.
double top2_gap(std::span<const float> logits);

}  // namespace amk
