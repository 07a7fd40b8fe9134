// Series small enough to draw: a plot has about a thousand columns, a campaign may have a hundred thousand experiments. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "orchestrator/store/types.h"

namespace amk::dashboard {

// Indices of the values to draw, ascending: all that are not NaN if they are at most `at_most`, else of each of at_most/4 equal stretches the
// least and the greatest, so that no extreme is lost, and two in between, so that extremes are not all there is. at_most >= 4.
std::vector<std::size_t> keep_extremes(std::span<const float> values, std::size_t at_most);

// How many experiments of each outcome, by stretches of equal length.
struct OutcomeTimeline {
  std::size_t per = 1;  // experiments a stretch: 1, 2, 5, 10, 20, …; the last stretch may be shorter
  std::vector<std::array<std::uint32_t, kOutcomes>> counts;
};
OutcomeTimeline outcome_timeline(std::span<const std::uint8_t> outcomes, std::size_t at_most);

}  // namespace amk::dashboard
