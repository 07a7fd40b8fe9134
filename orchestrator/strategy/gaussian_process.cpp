#include "orchestrator/strategy/gaussian_process.h"

#include <algorithm>
#include <cmath>

#include "core/base/json.h"
#include "orchestrator/strategy/round_numbers.h"

namespace amk {
namespace {

constexpr double kPriorSpread = 1.5;        // standard deviation of a log weight around its prior
constexpr double kNoisePrior = -6.9;        // log variance: 3% of the spread of the values
constexpr double kLeast = -6.9, kMost = 3;  // bounds of log weights
constexpr double kLeastNoise = -13, kMostNoise = -1.2;
constexpr double kEffectPrior = -1.6;  // log variance of one knob's main effect, in units of the product's

double number_of(const Json& choice) { return choice.is_number() ? choice.get<double>() : 0.0; }

// Positions of an ordinal knob's choices in [0, 1]: the mean of the rank and of the (log) value, so that neither a dense end of the list
// nor a far outlier owns the axis.
std::vector<double> axis(const Knob& knob) {
  const std::size_t n = knob.choices.size();
  std::vector<double> value(n);
  for (std::size_t i = 0; i < n; ++i) value[i] = number_of(knob.choices[i]);
  const auto [low, high] = std::minmax_element(value.begin(), value.end());
  const bool logarithmic = *low > 0 && *high / *low >= 8;
  const double from = logarithmic ? std::log(*low) : *low, to = logarithmic ? std::log(*high) : *high;
  std::vector<double> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double rank = n > 1 ? static_cast<double>(i) / static_cast<double>(n - 1) : 0;
    const double v = logarithmic ? std::log(value[i]) : value[i];
    out[i] = to > from ? 0.5 * (rank + (v - from) / (to - from)) : rank;
  }
  return out;
}

int trailing_zeros(double value) {
  if (value == 0 || value != std::floor(value) || std::abs(value) > 1e9) return 0;
  auto v = static_cast<std::int64_t>(std::abs(value));
  int zeros = 0;
  while (v % 2 == 0) v /= 2, ++zeros;
  return zeros;
}

// Four partial sums: the compiler may not reorder floating-point additions by itself.
double dot(const double* a, const double* b, std::size_t n) {
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    s0 += a[i] * b[i];
    s1 += a[i + 1] * b[i + 1];
    s2 += a[i + 2] * b[i + 2];
    s3 += a[i + 3] * b[i + 3];
  }
  for (; i < n; ++i) s0 += a[i] * b[i];
  return (s0 + s1) + (s2 + s3);
}

std::size_t row_start(std::size_t i) { return i * (i + 1) / 2; }

// In place, row by row; false when a pivot is not positive.
bool cholesky(std::vector<double>& a, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    double* row = a.data() + row_start(i);
    for (std::size_t j = 0; j < i; ++j) {
      const double* other = a.data() + row_start(j);
      row[j] = (row[j] - dot(row, other, j)) / other[j];
    }
    const double pivot = row[i] - dot(row, row, i);
    if (!(pivot > 0)) return false;
    row[i] = std::sqrt(pivot);
  }
  return true;
}

void solve_lower(const std::vector<double>& l, std::vector<double>& b) {
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = (b[i] - dot(l.data() + row_start(i), b.data(), i)) / l[row_start(i) + i];
}

void solve_upper(const std::vector<double>& l, std::vector<double>& b) {  // with the transpose of l
  for (std::size_t i = b.size(); i-- > 0;) {
    const double* row = l.data() + row_start(i);
    b[i] /= row[i];
    for (std::size_t j = 0; j < i; ++j) b[j] -= row[j] * b[i];
  }
}

}  // namespace

GaussianProcess::GaussianProcess(const SearchSpace& space, bool rounds) : space_(space), log_noise_(kNoisePrior) {
  const auto add = [&](std::size_t knob, double prior, auto distance) {
    const std::size_t n = space.knobs[knob].choices.size();
    Component c;
    c.knob = knob;
    c.prior = c.log_weight = prior;
    c.distance.resize(n * n);
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b) c.distance[a * n + b] = distance(a, b);
    components_.push_back(std::move(c));
  };
  for (std::size_t k = 0; k < space.knobs.size(); ++k) {
    const Knob& knob = space.knobs[k];
    const std::size_t n = knob.choices.size();
    if (n < 2) continue;
    const bool ordered = knob.kind == KnobKind::Ordinal && n > 2;
    add(k, std::log(ordered ? 0.1 : 0.4), [](std::size_t a, std::size_t b) { return a == b ? 0.0 : 1.0; });
    if (!ordered) continue;
    const std::vector<double> at = axis(knob);
    add(k, std::log(1.0), [&](std::size_t a, std::size_t b) { return std::abs(at[a] - at[b]); });
    std::vector<double> zeros(n);
    double most = 0;
    bool monotone = true;  // powers of two in order: the axis says it already
    for (std::size_t i = 0; i < n; ++i) {
      zeros[i] = trailing_zeros(number_of(knob.choices[i]));
      most = std::max(most, zeros[i]);
      if (i > 0 && zeros[i] < zeros[i - 1]) monotone = false;
    }
    if (!monotone) add(k, std::log(0.3), [&](std::size_t a, std::size_t b) { return std::abs(zeros[a] - zeros[b]) / most; });
    const std::vector<bool> power = powers_of_two(knob);
    if (rounds && !power.empty()) add(k, std::log(0.3), [&](std::size_t a, std::size_t b) { return power[a] != power[b] ? 1.0 : 0.0; });
  }
  // The factors of the main effects have their shapes fixed at three times the weights that the product starts with: one knob alone may move
  // the value by much more than its share of a product.
  for (const Component& c : components_) {
    if (effects_.empty() || effects_.back().knob != c.knob) effects_.push_back({c.knob, std::vector<double>(c.distance.size(), 0.0), kEffectPrior});
    for (std::size_t i = 0; i < c.distance.size(); ++i) effects_.back().table[i] -= 3 * std::exp(c.prior) * c.distance[i];
  }
  for (MainEffect& e : effects_)
    for (double& t : e.table) t = std::exp(t);
}

void GaussianProcess::scale_correlation(const Component& c, double weight, std::vector<double>& correlation) const {
  const std::size_t n = space_.knobs[c.knob].choices.size();
  std::vector<double> factor(c.distance.size());
  for (std::size_t i = 0; i < factor.size(); ++i) factor[i] = std::exp(-weight * c.distance[i]);
  std::size_t at = 0;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const double* row = factor.data() + points_[i][c.knob] * n;
    for (std::size_t j = 0; j <= i; ++j) correlation[at++] *= row[points_[j][c.knob]];
  }
}

void GaussianProcess::add_effect(const MainEffect& e, double weight, std::vector<double>& effects) const {
  const std::size_t n = space_.knobs[e.knob].choices.size();
  std::size_t at = 0;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const double* row = e.table.data() + points_[i][e.knob] * n;
    for (std::size_t j = 0; j <= i; ++j) effects[at++] += weight * row[points_[j][e.knob]];
  }
}

// Leaves factor_, alpha_ and signal_ of these weights. The signal's variance is profiled out: its best value has a closed form.
double GaussianProcess::log_posterior(const std::vector<double>& correlation, const std::vector<double>& effects, const std::vector<double>& z) {
  const std::size_t n = z.size();
  factor_ = correlation;
  for (std::size_t i = 0; i < factor_.size(); ++i) factor_[i] += effects[i];
  if (!trend_.empty()) {
    const double w = std::exp(log_trend_);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j <= i; ++j) factor_[row_start(i) + j] += w * trend_[i] * trend_[j];
  }
  for (std::size_t i = 0; i < n; ++i) factor_[row_start(i) + i] += std::exp(log_noise_);
  if (!cholesky(factor_, n)) return -1e300;
  alpha_ = z;
  solve_lower(factor_, alpha_);
  double quadratic = 0, log_determinant = 0;
  for (std::size_t i = 0; i < n; ++i) {
    quadratic += alpha_[i] * alpha_[i];
    log_determinant += 2 * std::log(factor_[row_start(i) + i]);
  }
  solve_upper(factor_, alpha_);
  // An inverse-gamma prior worth two observations of unit variance keeps the signal sane while there is little data.
  signal_ = (quadratic + 2) / (static_cast<double>(n) + 2);
  double log_prior = 0;
  for (const Component& c : components_) log_prior -= 0.5 * std::pow((c.log_weight - c.prior) / kPriorSpread, 2);
  for (const MainEffect& e : effects_) log_prior -= 0.5 * std::pow((e.log_weight - kEffectPrior) / kPriorSpread, 2);
  log_prior -= 0.5 * std::pow((log_noise_ - kNoisePrior) / kPriorSpread, 2);
  if (!trend_.empty()) log_prior -= 0.5 * std::pow(log_trend_ / kPriorSpread, 2);
  return -0.5 * ((static_cast<double>(n) + 2) * std::log(signal_) + log_determinant) + log_prior;
}

void GaussianProcess::fit(const std::vector<const Point*>& points, const std::vector<double>& y, const std::vector<double>& trend, int steps,
                          Rng& rng) {
  points_.clear();
  for (const Point* p : points) points_.push_back(*p);
  trend_ = trend;
  const auto n = static_cast<double>(y.size());
  mean_ = 0;
  for (double v : y) mean_ += v / n;
  double variance = 0;
  for (double v : y) variance += (v - mean_) * (v - mean_) / n;
  scale_ = variance > 1e-16 ? std::sqrt(variance) : 1.0;
  std::vector<double> z(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) z[i] = (y[i] - mean_) / scale_;

  rebuild_rows();
  std::vector<double> correlation(row_start(points_.size())), effects(correlation.size(), 0.0), trial;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    correlate(i + 1, points_[i], correlation.data() + row_start(i));
    for (const MainEffect& e : effects_) {
      const double* row = effect_rows_[e.knob].data() + points_[i][e.knob] * points_.size();
      for (std::size_t j = 0; j <= i; ++j) effects[row_start(i) + j] += row[j];
    }
  }
  double best = log_posterior(correlation, effects, z);
  bool stale = best <= -1e300, moved = false;  // stale: factor_ belongs to a refused step
  const std::size_t shapes = components_.size(), knobs = effects_.size(), scalars = trend_.empty() ? 1 : 2;
  for (int s = 0; s < steps; ++s) {
    const std::size_t which = rng.below(shapes + knobs + scalars);
    const double move = (rng.below(2) == 0 ? 1 : -1) * (0.25 + 1.5 * rng.uniform());
    double& weight = which < shapes            ? components_[which].log_weight
                     : which < shapes + knobs  ? effects_[which - shapes].log_weight
                     : which == shapes + knobs ? log_noise_
                                               : log_trend_;
    const bool noise = which == shapes + knobs;
    const double before = weight;
    weight = std::clamp(before + move, noise ? kLeastNoise : kLeast, noise ? kMostNoise : kMost);
    const double change = std::exp(weight) - std::exp(before);
    const std::vector<double>*trial_correlation = &correlation, *trial_effects = &effects;
    if (which < shapes) {
      trial = correlation;
      scale_correlation(components_[which], change, trial);
      trial_correlation = &trial;
    } else if (which < shapes + knobs) {
      trial = effects;
      add_effect(effects_[which - shapes], change, trial);
      trial_effects = &trial;
    }
    const double value = log_posterior(*trial_correlation, *trial_effects, z);
    stale = !(value > best);
    if (stale) {
      weight = before;
      continue;
    }
    best = value;
    moved = true;
    if (which < shapes)
      correlation.swap(trial);
    else if (which < shapes + knobs)
      effects.swap(trial);
  }
  // More noise until the matrix is positive definite; with the floor on the noise the first try is enough but for degenerate input.
  while (stale && log_posterior(correlation, effects, z) <= -1e300 && log_noise_ < 3) log_noise_ += 2;
  if (moved) rebuild_rows();
  const std::size_t count = points_.size();
  effect_means_.assign(effect_rows_.size(), {});
  for (std::size_t k = 0; k < effect_rows_.size(); ++k)
    for (std::size_t at = 0; at < effect_rows_[k].size(); at += count)
      effect_means_[k].push_back(dot(effect_rows_[k].data() + at, alpha_.data(), count));
  trend_mean_ = trend_.empty() ? 0 : std::exp(log_trend_) * dot(trend_.data(), alpha_.data(), count);
}

void GaussianProcess::rebuild_rows() {
  const std::size_t n = points_.size();
  // From choices × choices to choices × observations.
  const auto spread = [&](std::size_t knob, const std::vector<double>& table) {
    const std::size_t choices = space_.knobs[knob].choices.size();
    std::vector<double> out(choices * n);
    for (std::size_t c = 0; c < choices; ++c)
      for (std::size_t i = 0; i < n; ++i) out[c * n + i] = table[c * choices + points_[i][knob]];
    return out;
  };
  std::vector<std::vector<double>> tables(space_.knobs.size());
  for (const Component& c : components_) {
    auto& table = tables[c.knob];
    table.resize(c.distance.size(), 0.0);
    const double w = std::exp(c.log_weight);
    for (std::size_t i = 0; i < table.size(); ++i) table[i] -= w * c.distance[i];
  }
  factors_.assign(space_.knobs.size(), {});
  for (std::size_t k = 0; k < tables.size(); ++k) {
    if (tables[k].empty()) continue;
    for (double& t : tables[k]) t = std::exp(t);
    factors_[k] = spread(k, tables[k]);
  }
  effect_rows_.assign(space_.knobs.size(), {});
  own_variance_ = 1;
  for (const MainEffect& e : effects_) {
    const double w = std::exp(e.log_weight);
    effect_rows_[e.knob] = spread(e.knob, e.table);
    for (double& t : effect_rows_[e.knob]) t *= w;
    own_variance_ += w;
  }
}

void GaussianProcess::correlate(std::size_t rows, const Point& point, double* out) const {
  std::fill(out, out + rows, 1.0);
  for (std::size_t k = 0; k < factors_.size(); ++k) {
    if (factors_[k].empty()) continue;
    const double* row = factors_[k].data() + point[k] * points_.size();
    for (std::size_t i = 0; i < rows; ++i) out[i] *= row[i];
  }
}

void GaussianProcess::covariances(const Point& point, double trend, double* out) const {
  const std::size_t n = points_.size();
  correlate(n, point, out);
  for (std::size_t k = 0; k < effect_rows_.size(); ++k) {
    if (effect_rows_[k].empty()) continue;
    const double* row = effect_rows_[k].data() + point[k] * n;
    for (std::size_t i = 0; i < n; ++i) out[i] += row[i];
  }
  if (trend_.empty()) return;
  const double w = std::exp(log_trend_) * trend;
  for (std::size_t i = 0; i < n; ++i) out[i] += w * trend_[i];
}

std::vector<double> GaussianProcess::means(const std::vector<const Point*>& points, const std::vector<double>& trend) const {
  std::vector<double> out, k(points_.size());
  out.reserve(points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Point& point = *points[i];
    correlate(k.size(), point, k.data());
    double mean = dot(k.data(), alpha_.data(), k.size()) + (trend.empty() ? 0 : trend[i] * trend_mean_);
    for (std::size_t knob = 0; knob < effect_means_.size(); ++knob)
      if (!effect_means_[knob].empty()) mean += effect_means_[knob][point[knob]];
    out.push_back(mean_ + scale_ * mean);
  }
  return out;
}

std::vector<GaussianProcess::Estimate> GaussianProcess::predict(const std::vector<const Point*>& points, const std::vector<double>& trend) const {
  const std::size_t n = points_.size();
  std::vector<Estimate> out;
  out.reserve(points.size());
  std::vector<double> k(n);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double t = trend.empty() ? 0 : trend[i];
    covariances(*points[i], t, k.data());
    const double mean = dot(k.data(), alpha_.data(), n);
    solve_lower(factor_, k);
    const double own = own_variance_ + (trend_.empty() ? 0 : std::exp(log_trend_) * t * t);
    out.push_back({mean_ + scale_ * mean, scale_ * std::sqrt(signal_ * std::max(1e-12, own - dot(k.data(), k.data(), n)))});
  }
  return out;
}

std::vector<double> GaussianProcess::relevance() const {
  std::vector<double> out(space_.knobs.size(), 0.0);
  double total = 0;
  for (const Component& c : components_) out[c.knob] += std::exp(c.log_weight);
  for (const MainEffect& e : effects_) out[e.knob] += std::exp(e.log_weight);
  for (const double r : out) total += r;
  for (double& r : out) r = total > 0 ? r / total : 0;
  return out;
}

double GaussianProcess::trend_weight() const { return trend_.empty() ? 0 : std::exp(log_trend_); }

}  // namespace amk
