// A small regression forest of extremely randomised trees (Geurts, Ernst, Wehenkel 2006) over points of a space: mean and spread of a
// prediction. Ordinal knobs split by threshold on the index, categorical ones by equality. Deterministic given the seed.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/random.h"
#include "core/schedule/space.h"

namespace amk {

class Forest {
 public:
  struct Estimate {
    double mean = 0;
    double deviation = 0;  // between trees
  };

  Forest(const SearchSpace& space, int trees) : space_(space), trees_(static_cast<std::size_t>(trees)) {}
  // points[i] has the value y[i]. Replaces what was learned.
  void fit(const std::vector<const Point*>& points, const std::vector<double>& y, Rng& rng) { refresh(points, y, trees_.size(), rng); }
  // Grows only so many trees, those that were grown the longest ago (or never): a forest that is asked often can follow its data a few trees at a
  // time.
  void refresh(const std::vector<const Point*>& points, const std::vector<double>& y, std::size_t trees, Rng& rng);
  Estimate predict(const Point& point) const;
  bool fitted() const { return grown_ > 0; }

 private:
  struct Node {
    std::int32_t left = -1, right = -1;  // left < 0: a leaf
    std::uint16_t knob = 0, split = 0;   // goes left when index < split (ordinal) or index == split (categorical)
    bool equality = false;
    float value = 0;
  };
  std::int32_t grow(std::vector<Node>& tree, std::vector<std::int32_t>& items, std::size_t begin, std::size_t end,
                    const std::vector<const Point*>& points, const std::vector<double>& y, Rng& rng);

  const SearchSpace& space_;
  std::vector<std::vector<Node>> trees_;
  std::size_t grown_ = 0, oldest_ = 0;  // the first grown_ trees are there; the next to be grown
};

}  // namespace amk
