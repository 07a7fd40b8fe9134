// Steps through a space that several proposers share. Pure but for the generator.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "orchestrator/strategy/archive.h"

namespace amk {

void shuffle(std::vector<Point>& points, Rng& rng);
std::optional<Point> fresh_point(const Archive& archive, Rng& rng);  // random, valid, unknown; exhaustive as a last resort
// Random candidates, of which the one farthest from everything known is taken: a space-filling start (maximin, Johnson et al. 1990). With a score the
// third of the candidates that has the lowest is left to choose from. `rounded`: of powers of two more often than the space has them
// (round_numbers.h).
std::optional<Point> spread_point(const Archive& archive, Rng& rng, const std::function<double(const Point&)>& score = {}, bool rounded = false);
// 0…knobs: a differing categorical or boolean knob counts one, an ordinal one half and half of its share of the range.
double distance(const SearchSpace& space, const Point& a, const Point& b);
double knob_distance(const SearchSpace& space, std::size_t knob, std::uint16_t a, std::uint16_t b);  // its summands
void mutate_knob(const SearchSpace& space, Point& point, std::size_t knob, Rng& rng);                // to another choice (no-op for one choice)
// Up to `knobs` changed; valid, unknown; empty when the tries are used up. Each is one less of `tries`.
std::optional<Point> perturbed(const Archive& archive, const Point& from, int knobs, Rng& rng, int& tries);
std::optional<Point> perturbed(const Archive& archive, const Point& from, int knobs, Rng& rng);  // 300 tries
std::vector<const Observation*> best_observations(const Archive& archive, std::size_t n);        // correct ones, ascending cost

}  // namespace amk
