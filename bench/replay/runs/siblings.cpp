#include "bench/replay/runs/siblings.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "bench/replay/runs/replay.h"
#include "core/base/json.h"
#include "orchestrator/prior/corpus_prior.h"

namespace amk {
namespace {

template <typename T>
void deal_out(std::vector<T>& values, Rng& rng) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[rng.below(i)]);
}

}  // namespace

bool siblings(const RecordedSpace& a, const RecordedSpace& b) {
  const auto names = [](const RecordedSpace& s) {
    std::vector<std::string> out;
    for (const Knob& knob : s.space().knobs) out.push_back(knob.name);
    std::sort(out.begin(), out.end());
    return out;
  };
  return names(a) == names(b);
}

std::vector<Observation> recorded_rows(const RecordedSpace& recorded) {
  std::vector<Observation> out;
  for (const Point& p : recorded.points()) out.push_back({p, recorded.true_cost(p)});
  return out;
}

std::vector<Observation> rows_by_lot(std::vector<Observation> rows, std::size_t n, std::uint64_t draw) {
  if (n >= rows.size()) return rows;
  Rng rng(draw);
  for (std::size_t i = 0; i < n; ++i) std::swap(rows[i], rows[i + rng.below(rows.size() - i)]);
  rows.resize(n);
  return rows;
}

std::vector<Observation> searched_rows(const RecordedSpace& recorded, std::size_t evaluations, std::uint64_t draw) {
  ReplayOptions options;
  StrategyOptions search;
  search.seed = mix64(draw ^ 0x5EA5);  // no seed of a replay: a workspace's searches have seeds of their own
  const auto strategy = make_strategy(kDefaultStrategy, recorded.space(), search);
  std::vector<Observation> out;
  while (out.size() < evaluations) {
    const std::vector<Point> asked = (*strategy)->ask(1);
    if (asked.empty()) break;
    out.push_back({asked[0], seen_cost(recorded, asked[0], options.samples, search.seed)});
    (*strategy)->tell(out.back());
  }
  return out;
}

std::string_view to_string(Lie lie) {
  switch (lie) {
    case Lie::Inverted:
      return "inverted";
    case Lie::Shuffled:
      return "shuffled";
    case Lie::Reversed:
      return "reversed";
    case Lie::Permuted:
      return "permuted";
  }
  return "";
}

std::vector<Observation> told_falsely(const RecordedSpace& recorded, std::vector<Observation> rows, Lie lie, std::uint64_t draw) {
  Rng rng(draw);
  if (lie == Lie::Inverted) {
    for (Observation& o : rows)
      if (o.cost) o.cost = 1 / *o.cost;
    return rows;
  }
  if (lie == Lie::Shuffled) {
    std::vector<std::optional<double>> costs;
    for (const Observation& o : rows) costs.push_back(o.cost);
    deal_out(costs, rng);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].cost = costs[i];
    return rows;
  }
  std::vector<std::vector<std::uint16_t>> becomes;
  for (const Knob& knob : recorded.space().knobs) {
    auto& choices = becomes.emplace_back(knob.choices.size());
    std::iota(choices.begin(), choices.end(), std::uint16_t{0});
    if (lie == Lie::Reversed)
      std::reverse(choices.begin(), choices.end());
    else
      deal_out(choices, rng);
  }
  for (Observation& o : rows)
    for (std::size_t k = 0; k < o.point.size(); ++k) o.point[k] = becomes[k][o.point[k]];
  return rows;
}

std::shared_ptr<const Prior> prior_from(const RecordedSpace& target, const RecordedSpace& sibling, const std::vector<Observation>& rows,
                                        std::uint64_t seed) {
  const SearchSpace &to = target.space(), &from = sibling.space();
  std::vector<std::vector<int>> choice(to.knobs.size());
  std::vector<std::size_t> at(to.knobs.size());
  for (std::size_t k = 0; k < to.knobs.size(); ++k) {
    at[k] = from.index_of(to.knobs[k].name);
    if (at[k] == from.knobs.size()) continue;  // a knob that the sibling lacks stands at its first choice
    for (const Json& value : from.knobs[at[k]].choices) {
      const auto found = std::find(to.knobs[k].choices.begin(), to.knobs[k].choices.end(), value);
      choice[k].push_back(found == to.knobs[k].choices.end() ? -1 : static_cast<int>(found - to.knobs[k].choices.begin()));
    }
  }
  PriorSource source;
  source.name = sibling.name();
  for (const Observation& o : rows) {
    Point q(to.knobs.size(), 0);
    bool told = true;
    for (std::size_t k = 0; k < q.size(); ++k) {
      if (at[k] == from.knobs.size()) continue;
      const int c = choice[k][o.point[at[k]]];
      told = told && c >= 0;
      q[k] = static_cast<std::uint16_t>(std::max(c, 0));
    }
    if (told && to.violated(q) == nullptr)
      source.rows.push_back({q, o.cost});
    else
      ++source.untold;
  }
  return learn_prior(to, {}, {std::move(source)}, {}, seed).prior;
}

}  // namespace amk
