// Robust statistics of timing samples. Pure, thread-safe, deterministic (the bootstrap is seeded).
#pragma once

#include <cstdint>
#include <span>

namespace amk {

double median(std::span<const double> values);              // NaN when empty
double quantile(std::span<const double> values, double q);  // linear interpolation between order statistics; q in [0, 1]
double median_absolute_deviation(std::span<const double> values);

// Ratio of two paired series: exp of the median of log(incumbent / candidate), with a percentile bootstrap over the pairs
// (Efron & Tibshirani 1993, ch. 13). Pairs are measurements taken next to each other in time, so that drift cancels.
struct RatioInterval {
  double ratio = 1;   // > 1: the candidate is faster
  double ci_low = 0;  // 95%
  double ci_high = 0;
};
// Needs at least 5 pairs of positive numbers, else the interval is (0, infinity). Extra elements of the longer series are ignored.
RatioInterval paired_ratio(std::span<const double> incumbent_us, std::span<const double> candidate_us, std::uint64_t seed = 1, int resamples = 1000);

// The keep rule: Faster when the whole interval lies above 1 + margin (at least 1% faster, with the interval clear of it);
// Slower when the whole interval lies below 1; anything else is Inconclusive.
enum class Comparison { Faster, Slower, Inconclusive };
Comparison decide(const RatioInterval& interval, double margin = 0.01);

}  // namespace amk
