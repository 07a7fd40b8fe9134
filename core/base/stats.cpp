#include "core/base/stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/random.h"

namespace amk {
namespace {

// Median of a scratch vector, which it reorders.
double median_in_place(std::vector<double>& v) {
  const std::size_t half = v.size() / 2;
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(half), v.end());
  const double upper = v[half];
  if (v.size() % 2 == 1) return upper;
  return 0.5 * (upper + *std::max_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(half)));
}

}  // namespace

double median(std::span<const double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> v(values.begin(), values.end());
  return median_in_place(v);
}

double quantile(std::span<const double> values, double q) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> v(values.begin(), values.end());
  std::sort(v.begin(), v.end());
  const double at = std::clamp(q, 0.0, 1.0) * static_cast<double>(v.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, v.size() - 1);
  return v[low] + (at - static_cast<double>(low)) * (v[high] - v[low]);
}

double median_absolute_deviation(std::span<const double> values) {
  const double m = median(values);
  std::vector<double> v;
  v.reserve(values.size());
  for (double x : values) v.push_back(std::abs(x - m));
  return median(v);
}

RatioInterval paired_ratio(std::span<const double> incumbent_us, std::span<const double> candidate_us, std::uint64_t seed, int resamples) {
  RatioInterval out{1.0, 0.0, std::numeric_limits<double>::infinity()};
  std::vector<double> logs;
  for (std::size_t i = 0; i < std::min(incumbent_us.size(), candidate_us.size()); ++i)
    if (incumbent_us[i] > 0 && candidate_us[i] > 0) logs.push_back(std::log(incumbent_us[i] / candidate_us[i]));
  if (!logs.empty()) out.ratio = std::exp(median(logs));
  constexpr std::size_t kFewestPairs = 5;
  if (logs.size() < kFewestPairs) return out;

  Rng rng(seed);
  std::vector<double> medians(static_cast<std::size_t>(resamples)), draw(logs.size());
  for (double& m : medians) {
    for (double& d : draw) d = logs[rng.below(logs.size())];
    m = median_in_place(draw);
  }
  out.ci_low = std::exp(quantile(medians, 0.025));
  out.ci_high = std::exp(quantile(medians, 0.975));
  return out;
}

Comparison decide(const RatioInterval& interval, double margin) {
  if (interval.ci_low >= 1.0 + margin) return Comparison::Faster;
  if (interval.ci_high < 1.0) return Comparison::Slower;
  return Comparison::Inconclusive;
}

}  // namespace amk
