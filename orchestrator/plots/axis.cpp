#include "orchestrator/plots/axis.h"
#include "core/base/number_text.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace amk::plots {
namespace {

constexpr std::size_t kMostTicks = 12;
constexpr double kMargin = 0.04;

std::vector<double> linear_ticks(const Axis& axis, int wanted) {
  const double span = axis.high - axis.low;
  const double raw = span / std::max(1, wanted);
  const double decade = std::pow(10.0, std::floor(std::log10(raw)));
  double step = 10 * decade;
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * decade >= raw * 0.999) {
      step = factor * decade;
      break;
    }
  std::vector<double> out;
  for (double i = std::ceil(axis.low / step - 1e-9); i * step <= axis.high + 1e-9 * span && out.size() < kMostTicks; i += 1) out.push_back(i * step);
  return out;
}

std::vector<double> log_ticks(const Axis& axis, int wanted) {
  const int from = static_cast<int>(std::floor(std::log10(axis.low) + 1e-9)), to = static_cast<int>(std::ceil(std::log10(axis.high) - 1e-9));
  std::vector<double> out;
  const bool dense = to - from <= 3;
  const int stride = std::max(1, (to - from) / std::max(1, wanted));
  for (int e = from; e <= to; e += dense ? 1 : stride)
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && !dense) continue;
      const double value = factor * std::pow(10.0, e);
      if (value >= axis.low * (1 - 1e-9) && value <= axis.high * (1 + 1e-9) && out.size() < kMostTicks) out.push_back(value);
    }
  // Within one step of 1, 2, 5 there may be a single tick, or none: then the axis is as good as linear.
  return out.size() >= 2 ? out : linear_ticks(axis, wanted);
}

}  // namespace

double Axis::position(double value) const {
  if (logarithmic) return std::log(value / low) / std::log(high / low);
  return (value - low) / (high - low);
}

std::vector<double> ticks(const Axis& axis, int wanted) {
  if (!(axis.high > axis.low) || !std::isfinite(axis.high - axis.low)) return {axis.low};
  return axis.logarithmic && axis.low > 0 ? log_ticks(axis, wanted) : linear_ticks(axis, wanted);
}

Axis axis_for(const std::vector<double>& values, bool logarithmic) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double v : values) {
    if (!std::isfinite(v) || (logarithmic && v <= 0)) continue;
    low = std::min(low, v);
    high = std::max(high, v);
  }
  if (!(low <= high)) return logarithmic ? Axis{1, 10, true} : Axis{0, 1, false};
  if (logarithmic) {
    if (low == high) return {low / 1.1, high * 1.1, true};
    const double factor = std::pow(high / low, kMargin);
    return {low / factor, high * factor, true};
  }
  if (low == high) {
    const double half = low == 0 ? 1 : std::abs(low) * 0.1;
    return {low - half, high + half, false};
  }
  return {low - kMargin * (high - low), high + kMargin * (high - low), false};
}

std::string tick_text(double value) { return with_digits(std::abs(value) < 1e-12 ? 0.0 : value, 4); }

}  // namespace amk::plots
