// A cost model corrected by what was recorded: a Gaussian process over the logarithm of recorded over predicted latency. Where nothing was recorded
// nearby the prediction stands, with the doubt that the records cast on it. Deterministic. Const members are thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "orchestrator/strategy/gaussian_process.h"

namespace amk {

class Correction {
 public:
  struct Row {
    Point point;
    double recorded_us = 0, predicted_us = 0;
  };
  struct Estimate {
    double us = 0, low_us = 0, high_us = 0;  // median and the central 95%
  };
  static constexpr std::size_t kFewestRows = 8;

  // nullptr for fewer than kFewestRows rows, or when every prediction is what was recorded (nothing to correct). `space` outlives the result.
  static std::unique_ptr<const Correction> learn(const SearchSpace& space, const std::vector<Row>& rows);
  Estimate at(const Point& point, double predicted_us) const;
  std::size_t rows() const { return rows_; }

 private:
  explicit Correction(const SearchSpace& space) : process_(space) {}
  GaussianProcess process_;
  std::size_t rows_ = 0;
};

}  // namespace amk
