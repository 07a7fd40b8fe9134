// A prior's scores of one space, on a scale that a model can use: standardised over a sample of the space, with its worse half bent at
// the median, and the points that the prior likes most. Thread-safe when const.
#pragma once

#include <memory>
#include <vector>

#include "orchestrator/strategy/archive.h"

namespace amk {

// A log cost, or a score like one, bent at `bend`: a search needs the shape of the good half, and what is bad by a factor of a hundred would own
// the scale; above the bend a tenth of the slope remains, enough to tell which way is down.
constexpr double bent(double y, double bend) { return y <= bend ? y : bend + 0.1 * (y - bend); }

constexpr double unbent(double y, double bend) { return y <= bend ? y : bend + 10 * (y - bend); }

class Trend {
 public:
  // Looks at `sample` valid points and climbs from the best of them. nullptr when the prior tells no point from another.
  static std::shared_ptr<const Trend> create(std::shared_ptr<const Prior> prior, const Archive& archive, Rng& rng, std::size_t sample = 3000);

  double at(const Point& point) const;                                  // lower is better; spread 1 over the space
  const std::vector<Point>& favourites() const { return favourites_; }  // best first, at most 200, all valid

 private:
  std::shared_ptr<const Prior> prior_;
  double bend_ = 0, mean_ = 0, scale_ = 1;
  std::vector<Point> favourites_;
};

}  // namespace amk
