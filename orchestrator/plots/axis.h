// Axes of charts: where ticks go, what they say, and where a value lands. Pure, thread-safe.
#pragma once

#include <string>
#include <vector>

namespace amk::plots {

struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;

  // 0 at `low`, 1 at `high`; not clamped. `value` > 0 on a logarithmic axis.
  double position(double value) const;
};

// Round numbers (1, 2 or 5 times a power of ten; on a logarithmic axis decades, with 2 and 5 between them when there are few) within the axis,
// ascending, about `wanted` of them and never more than 12.
std::vector<double> ticks(const Axis& axis, int wanted = 6);

// An axis that holds every finite value (positive ones, if logarithmic) with a margin of 4% on either side; [0, 1] or [1, 10] for none.
Axis axis_for(const std::vector<double>& values, bool logarithmic);

std::string tick_text(double value);  // at most four significant digits

}  // namespace amk::plots
