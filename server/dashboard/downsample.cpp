#include "server/dashboard/downsample.h"

#include <algorithm>
#include <cmath>

namespace amk::dashboard {

std::vector<std::size_t> keep_extremes(std::span<const float> values, std::size_t at_most) {
  std::vector<std::size_t> kept;
  const auto drawable = static_cast<std::size_t>(std::count_if(values.begin(), values.end(), [](float v) { return !std::isnan(v); }));
  if (drawable <= at_most) {
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!std::isnan(values[i])) kept.push_back(i);
    return kept;
  }
  const std::size_t stretches = std::max<std::size_t>(1, at_most / 4);
  for (std::size_t s = 0; s < stretches; ++s) {
    const std::size_t from = values.size() * s / stretches, to = values.size() * (s + 1) / stretches;
    std::size_t least = to, greatest = to;
    for (std::size_t i = from; i < to; ++i) {
      if (std::isnan(values[i])) continue;
      if (least == to || values[i] < values[least]) least = i;
      if (greatest == to || values[i] > values[greatest]) greatest = i;
    }
    if (least == to) continue;
    std::array<std::size_t, 4> four{least, greatest, from + (to - from) / 3, from + 2 * (to - from) / 3};
    std::sort(four.begin(), four.end());
    for (const std::size_t i : four)
      if (!std::isnan(values[i]) && (kept.empty() || kept.back() < i)) kept.push_back(i);
  }
  return kept;
}

OutcomeTimeline outcome_timeline(std::span<const std::uint8_t> outcomes, std::size_t at_most) {
  OutcomeTimeline out;
  const auto stretches = [&] { return (outcomes.size() + out.per - 1) / out.per; };
  // 1, 2, 5, 10, …: people can say how many experiments a bar is.
  for (int step = 0; stretches() > std::max<std::size_t>(1, at_most); ++step) out.per = step % 3 == 1 ? out.per / 2 * 5 : out.per * 2;
  out.counts.resize(stretches());
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    if (outcomes[i] < kOutcomes) ++out.counts[i / out.per][outcomes[i]];
  return out;
}

}  // namespace amk::dashboard
