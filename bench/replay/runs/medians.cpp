#include "bench/replay/runs/medians.h"

#include <algorithm>

#include "core/base/random.h"

namespace amk {

double ordered(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<std::size_t>(q * static_cast<double>(v.size())))];
}

MedianRatio median_ratio(const std::vector<double>& with, const std::vector<double>& without, double limit) {
  constexpr int kResamples = 2000;
  const std::size_t n = std::min(with.size(), without.size());
  std::vector<double> a(n), b(n), ratios;
  const auto ratio = [&] { return std::min(ordered(a, 0.5), limit) / std::min(ordered(b, 0.5), limit); };
  std::copy_n(with.begin(), n, a.begin());
  std::copy_n(without.begin(), n, b.begin());
  MedianRatio out;
  out.ratio = ratio();
  Rng rng(1);
  for (int i = 0; i < kResamples; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      const std::size_t drawn = rng.below(n);
      a[j] = with[drawn];
      b[j] = without[drawn];
    }
    ratios.push_back(ratio());
  }
  out.low = ordered(ratios, 0.025);
  out.high = ordered(ratios, 0.975);
  return out;
}

}  // namespace amk
