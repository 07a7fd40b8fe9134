// Gaussian-process regression over points of a space, for the few tens to hundreds of observations that a search has (Rasmussen & Williams 2006,
// algorithm 2.1; for auto-tuning Willemsen et al. 2021, "Bayesian optimization for auto-tuning GPU kernels").
// The covariance is a product over knobs of exp(-w·d). An ordinal knob has up to four distances: along its axis (mean of rank and value,
// logarithmic where the choices span a factor of eight), "differs at all" (numbers that only name variants; the kernel of categorical knobs in
// SMAC3), and the difference in trailing zero bits (warps and memory sectors make multiples of 32, 64, 128 alike), and "a power of two or not"
// (round_numbers.h). Categorical and boolean knobs have the second only. To the product a weighted sum over the same factors, knob by knob, is added:
// effects of single knobs on the log of a cost are nearly additive, and the sum learns them from few observations (additive processes, Duvenaud et
// al. 2011). Optionally a linear term in a trend, an advance guess of the value, is added, whose weight is learned like the others: a trend that does
// not fit the observations fades. Weights are improved by coordinate steps on the posterior density, as many as the caller affords. Deterministic
// given the generator. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/random.h"
#include "core/schedule/space.h"

namespace amk {

class GaussianProcess {
 public:
  struct Estimate {
    double mean = 0;
    double deviation = 0;  // of the noiseless value
  };

  // `rounds`: with the distance of powers of two. Not beside a trend, which knows what sizes suit.
  explicit GaussianProcess(const SearchSpace& space, bool rounds = true);

  // points[i] has the value y[i]; finite, at least two. `trend`: one number a point in units of its spread over the space, or empty.
  // `steps`: likelihood evaluations spent on better weights.
  void fit(const std::vector<const Point*>& points, const std::vector<double>& y, const std::vector<double>& trend, int steps, Rng& rng);

  // Of any number of points, with their trends if fit() had some. Means cost O(knobs · observations) each, deviations O(observations²) more.
  std::vector<double> means(const std::vector<const Point*>& points, const std::vector<double>& trend = {}) const;
  std::vector<Estimate> predict(const std::vector<const Point*>& points, const std::vector<double>& trend = {}) const;

  // How much the fitted function may move along a knob: the weights of its distances, as shares that sum to one.
  std::vector<double> relevance() const;
  double trend_weight() const;  // variance of the trend's slope in units of the process's; 0 without a trend

 private:
  struct Component {  // one distance of one knob
    std::size_t knob = 0;
    std::vector<double> distance;  // choices × choices
    double prior = 0;              // mean of the log weight
    double log_weight = 0;
  };
  struct MainEffect {  // what one knob does whatever the others are
    std::size_t knob = 0;
    std::vector<double> table;  // choices × choices: correlation
    double log_weight = 0;
  };
  double log_posterior(const std::vector<double>& correlation, const std::vector<double>& effects, const std::vector<double>& z);
  void add_effect(const MainEffect& e, double weight, std::vector<double>& effects) const;
  void scale_correlation(const Component& c, double weight, std::vector<double>& correlation) const;  // times exp(-weight·distance)
  void rebuild_rows();
  void correlate(std::size_t rows, const Point& point, double* out) const;  // the product, with the first `rows` observations
  void covariances(const Point& point, double trend, double* out) const;    // with every observation

  const SearchSpace& space_;
  std::vector<Component> components_;
  std::vector<MainEffect> effects_;
  double log_noise_, log_trend_ = 0;
  std::vector<Point> points_;
  std::vector<double> trend_;
  std::vector<double> factor_;  // lower triangle of the Cholesky factor, row by row: row i starts at i(i+1)/2
  std::vector<double> alpha_;
  // Per knob, choices × observations: what a choice contributes to the covariance with each observation, as a factor of the product and as its
  // weighted main effect. A point's covariances are products and sums of whole rows. Empty for a knob of one choice.
  std::vector<std::vector<double>> factors_, effect_rows_;
  std::vector<std::vector<double>> effect_means_;  // per knob and choice: effect_rows_ times alpha_
  double trend_mean_ = 0;                          // trend_ times alpha_
  double own_variance_ = 1;                        // of any point, without the trend
  double mean_ = 0, scale_ = 1;                    // of y
  double signal_ = 1;                              // variance of the process, in units of scale_²
};

}  // namespace amk
