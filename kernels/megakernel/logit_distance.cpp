#include "kernels/megakernel/logit_distance.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace amk {
namespace {

double log_sum_exp(std::span<const float> v) {
  const double top = *std::max_element(v.begin(), v.end());
  double sum = 0;
  for (float x : v) sum += std::exp(x - top);
  return top + std::log(sum);
}

}  // namespace

double kl_divergence(std::span<const float> oracle, std::span<const float> candidate) {
  const double a = log_sum_exp(oracle), b = log_sum_exp(candidate);
  double kl = 0;
  for (std::size_t i = 0; i < oracle.size(); ++i) kl += std::exp(oracle[i] - a) * ((oracle[i] - a) - (candidate[i] - b));
  return std::max(0.0, kl);
}

double top2_gap(std::span<const float> v) {
  float first = -std::numeric_limits<float>::infinity(), second = first;
  for (float x : v) {
    if (x > first) {
      second = first;
      first = x;
    } else if (x > second) {
      second = x;
    }
  }
  return static_cast<double>(first) - second;
}

void merge(Correctness& all, const Correctness& more) {
  const double a = static_cast<double>(all.positions_checked), b = static_cast<double>(more.positions_checked);
  const auto mean = [&](double x, double y) { return a + b > 0 ? (x * a + y * b) / (a + b) : 0.0; };
  all.mean_abs_err = mean(all.mean_abs_err, more.mean_abs_err);
  all.top1_agreement = mean(all.top1_agreement, more.top1_agreement);
  all.max_abs_err = std::max(all.max_abs_err, more.max_abs_err);
  all.kl = std::max(all.kl, more.kl);
  all.bound = std::max(all.bound, more.bound);
  all.bitwise_repeatable = all.bitwise_repeatable && more.bitwise_repeatable;
  all.positions_checked += more.positions_checked;
}

}  // namespace amk
