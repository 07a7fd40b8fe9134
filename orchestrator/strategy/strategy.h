// Ask/tell search over a SearchSpace. Strategies propose points that satisfy every static constraint, never twice, and learn from
// results and failures alike. Deterministic: the same space, seed, options and tells give the same asks, on every machine.
// Not thread-safe: the owner serialises calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/schedule/space.h"

namespace amk {

// What is known of an evaluated point. `cost` (µs) is present only for a correct candidate; without it the point is a negative example.
struct Observation {
  Point point;
  std::optional<double> cost;
};

// Ranks points before any measurement: lower is better. Advisory: wrong priors must not ruin a search.
class Prior {
 public:
  virtual ~Prior() = default;
  virtual double score(const Point& point) const = 0;  // thread-safe; comparable between points of one space only
  // Logarithm of the cost, up to a constant of the prior, where it claims to know: what it says can be held against what is measured. Thread-safe.
  virtual std::optional<double> log_cost(const Point& /*point*/) const { return std::nullopt; }
  // Whether what it likes best is more than the best that somebody met: an optimum, as far as single moves from it were tried.
  virtual bool explored() const { return true; }
  // Points that it knows and likes, best first, at most n; may be empty: a prior may know only how to score.
  virtual std::vector<Point> known_best(std::size_t /*n*/) const { return {}; }
};

struct StrategyOptions {
  std::uint64_t seed = 1;
  std::shared_ptr<const Prior> prior;  // may be null (--cold)
  // A model of this very workload and device, followed where the prior is only tried, or refuted; may be null.
  std::shared_ptr<const Prior> otherwise;
  bool prior_is_model = false;  // a model of this very workload and device: what it ranks low costs too much time to be tried for its own sake
  std::vector<Point> start;     // tried first, in order (the incumbent, the default)
  std::size_t expected_evaluations = 64;  // the budget, as far as known: lets a strategy balance exploration
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;
  // Up to n points not asked or told before (fewer when the space is nearly exhausted, none when it is). Points asked and not yet told are pending:
  // later asks work around them.
  virtual std::vector<Point> ask(std::size_t n) = 0;
  // Results may come in any order, also for points that were never asked (a resumed campaign, another client's evaluations).
  virtual void tell(const Observation& observation) = 0;
};

// NotFound names the accepted strategies.
Result<std::unique_ptr<Strategy>> make_strategy(std::string_view name, const SearchSpace& space, const StrategyOptions& options);
std::vector<std::string> strategy_names();
inline constexpr std::string_view kDefaultStrategy = "portfolio";

}  // namespace amk
