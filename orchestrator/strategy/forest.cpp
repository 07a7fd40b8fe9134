#include "orchestrator/strategy/forest.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace amk {
namespace {

constexpr std::size_t kSmallestSplit = 3;  // nodes with fewer items become leaves

}  // namespace

void Forest::refresh(const std::vector<const Point*>& points, const std::vector<double>& y, std::size_t trees, Rng& rng) {
  if (points.empty()) return;
  std::vector<std::int32_t> items(points.size());
  for (std::size_t i = 0; i < std::min(trees, trees_.size()); ++i) {
    auto& tree = trees_[oldest_];
    tree.clear();
    std::iota(items.begin(), items.end(), 0);
    grow(tree, items, 0, items.size(), points, y, rng);
    grown_ = std::max(grown_, oldest_ + 1);
    oldest_ = (oldest_ + 1) % trees_.size();
  }
}

std::int32_t Forest::grow(std::vector<Node>& tree, std::vector<std::int32_t>& items, std::size_t begin, std::size_t end,
                          const std::vector<const Point*>& points, const std::vector<double>& y, Rng& rng) {
  const auto at = static_cast<std::int32_t>(tree.size());
  tree.emplace_back();
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += y[static_cast<std::size_t>(items[i])];
  tree[static_cast<std::size_t>(at)].value = static_cast<float>(sum / static_cast<double>(end - begin));
  if (end - begin < kSmallestSplit) return at;

  // One random split for every knob that varies here; the one that explains most wins.
  Node best;
  double best_gain = 1e-12;
  const auto goes_left = [](const Node& n, std::uint16_t v) { return n.equality ? v == n.split : v < n.split; };
  for (std::size_t k = 0; k < space_.knobs.size(); ++k) {
    std::uint16_t low = 0xFFFF, high = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint16_t v = (*points[static_cast<std::size_t>(items[i])])[k];
      low = std::min(low, v);
      high = std::max(high, v);
    }
    if (low == high) continue;
    Node candidate;
    candidate.knob = static_cast<std::uint16_t>(k);
    candidate.equality = space_.knobs[k].kind == KnobKind::Categorical;
    candidate.split = candidate.equality ? (*points[static_cast<std::size_t>(items[begin + rng.below(end - begin)])])[k]
                                         : static_cast<std::uint16_t>(low + 1 + rng.below(static_cast<std::uint64_t>(high - low)));
    double left_sum = 0;
    std::size_t left_count = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const auto item = static_cast<std::size_t>(items[i]);
      if (goes_left(candidate, (*points[item])[k])) left_sum += y[item], ++left_count;
    }
    const std::size_t right_count = end - begin - left_count;
    if (left_count == 0 || right_count == 0) continue;
    const double right_sum = sum - left_sum;
    const double gain = left_sum * left_sum / static_cast<double>(left_count) + right_sum * right_sum / static_cast<double>(right_count) -
                        sum * sum / static_cast<double>(end - begin);
    if (gain > best_gain) best_gain = gain, best = candidate;
  }
  if (best_gain <= 1e-12) return at;

  const auto middle = std::stable_partition(items.begin() + static_cast<std::ptrdiff_t>(begin), items.begin() + static_cast<std::ptrdiff_t>(end),
                                            [&](std::int32_t i) { return goes_left(best, (*points[static_cast<std::size_t>(i)])[best.knob]); });
  const auto cut = static_cast<std::size_t>(middle - items.begin());
  best.value = tree[static_cast<std::size_t>(at)].value;
  best.left = grow(tree, items, begin, cut, points, y, rng);
  best.right = grow(tree, items, cut, end, points, y, rng);
  tree[static_cast<std::size_t>(at)] = best;
  return at;
}

Forest::Estimate Forest::predict(const Point& point) const {
  double sum = 0, squares = 0;
  for (std::size_t t = 0; t < grown_; ++t) {
    const auto& tree = trees_[t];
    std::size_t at = 0;
    while (tree[at].left >= 0) {
      const Node& n = tree[at];
      const std::uint16_t v = point[n.knob];
      at = static_cast<std::size_t>((n.equality ? v == n.split : v < n.split) ? n.left : n.right);
    }
    sum += tree[at].value;
    squares += static_cast<double>(tree[at].value) * tree[at].value;
  }
  const auto count = static_cast<double>(grown_);
  const double mean = sum / count;
  return {mean, std::sqrt(std::max(0.0, squares / count - mean * mean))};
}

}  // namespace amk
