// Random points and configs for property tests and searches: equal generator states, equal draws, on every machine. Not thread-safe (Rng).
#pragma once

#include <vector>

#include "core/base/random.h"
#include "core/schedule/config.h"

namespace amk {

// Uniform over the points that satisfy every constraint (by rejection; the default point if a thousand draws in a row fail).
Point random_point(const SearchSpace& space, Rng& rng);
ScheduleConfig random_config(const SearchSpace& space, Rng& rng);

// The points that differ from `point` in exactly one knob and satisfy every constraint, in a fixed order. Of an ordinal knob every other value,
// not only the next: `near_only` keeps the values beside it.
std::vector<Point> neighbours(const SearchSpace& space, const Point& point, bool near_only = false);

// Over everything that parsing accepts and the static rules allow, not only the choices of a space (N_tile = 24, threads = 992 …), with the
// ring at most `smem_cap_bytes`. No explicit maps.
ScheduleConfig random_accepted_config(std::int64_t smem_cap_bytes, Rng& rng);

}  // namespace amk
