#include "orchestrator/prior/vote.h"

#include <algorithm>
#include <map>

namespace amk {

double Vote::score(const Point& point) const {
  double sum = 0;
  for (const auto& [weight, model] : members) sum += weight * model.score(point);
  return sum;
}

std::optional<double> Vote::log_cost(const Point& point) const {
  double sum = 0;
  for (const auto& [weight, model] : members) sum += weight * model.log_cost(point);
  return sum;
}

std::vector<Point> Vote::known_best(std::size_t n) const {
  std::map<Point, double> scores;
  for (const auto& [weight, model] : members)
    for (Point& point : model.best(n))
      if (const auto [at, fresh] = scores.try_emplace(std::move(point), 0.0); fresh) at->second = score(at->first);
  std::vector<std::pair<double, const Point*>> ranked;
  for (const auto& [point, s] : scores) ranked.emplace_back(s, &point);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Point> out;
  for (std::size_t i = 0; i < std::min(n, ranked.size()); ++i) out.push_back(*ranked[i].second);
  return out;
}

bool Vote::explored() const {
  if (is_model) return true;
  double share = 0;
  for (const auto& [weight, model] : members) share += model.explored() ? weight : 0;
  return share >= 0.5;
}

}  // namespace amk
