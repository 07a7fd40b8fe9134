// Medians of repeats, some of which may never have got there (infinity). Pure, deterministic.
#pragma once

#include <vector>

namespace amk {

// An order statistic: no interpolation towards infinity.
double ordered(std::vector<double> values, double q);

// Median of `with` over median of `without`, and a 95% interval by bootstrap over the pairs (percentiles; Efron, Tibshirani 1993, ch. 13). A pair
// is two runs of one seed, which see noise and draw alike; where a prior was refuted the second is the first, some evaluations late. What is above
// `limit`, or infinite, counts as the limit.
struct MedianRatio {
  double ratio = 1, low = 1, high = 1;
};
MedianRatio median_ratio(const std::vector<double>& with, const std::vector<double>& without, double limit);

}  // namespace amk
