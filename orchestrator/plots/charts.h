// The two charts that reports and benchmarks need, as SVG text: lines with bands, and horizontal bars. Pure, thread-safe, deterministic.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace amk::plots {

struct Series {
  std::string name;
  std::vector<double> x, y;
  std::vector<double> low, high;  // the band around y; empty: none
  bool steps = false;             // y holds until the next x, as a best-so-far does
  std::size_t marked = 0;         // of the first so many points each has a mark: a line of one point is none
};

struct Level {  // a dashed line across
  std::string name;
  double y = 0;
};

struct LineChart {
  std::string title, x_label, y_label;
  bool logarithmic_x = false, logarithmic_y = false;
  std::vector<Series> series;
  std::vector<Level> levels;
};
// Values that are not finite (or not positive on a logarithmic axis) are left out; they break a line.
std::string line_chart(const LineChart& chart);

struct Bar {
  std::string label;
  double value = 0;  // not negative
  std::string note;  // beside the bar; empty: the value
};
std::string bar_chart(const std::string& title, const std::string& unit, const std::vector<Bar>& bars);

}  // namespace amk::plots
