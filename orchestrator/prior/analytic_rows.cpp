#include "orchestrator/prior/analytic_rows.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/base/parallel.h"
#include "orchestrator/strategy/archive.h"

namespace amk {
namespace {

constexpr std::size_t kSample = 160;  // points at which the model is asked …
constexpr std::size_t kMost = 1000;   // … and with the climbs at most
constexpr int kClimbs = 2;

// From the first row (the default) and the best of the sample, the model's own best: knob by knob, to the choice that it likes best, until a round
// over all knobs has moved none; then knobs that make no difference go back to the default's choice, which may free another; then two knobs at once,
// where a choice of one is refused alone. What is good is not in a sample when it takes several knobs at once, each of which only some others allow;
// and a forest knows nothing of what no row shows.
class Climb {
 public:
  // Appends what it asks for to `rows`; `score` scores what is new. What does not run after all loses its score.
  Climb(const Archive& archive, std::vector<Observation>& rows, std::function<void()> score, const std::function<bool(const Point&)>& runs)
      : archive_(archive), rows_(rows), score_(std::move(score)), runs_(runs), sample_(rows.size()) {
    for (std::size_t i = 0; i < rows_.size(); ++i) known_.emplace(rows_[i].point, i);
  }
  void run() {
    std::vector<std::size_t> sample(sample_);
    std::iota(sample.begin(), sample.end(), std::size_t{0});
    for (int n = 0; n < kClimbs && !rows_.empty(); ++n) {
      at_ = 0;
      if (n > 0 && !go_to_best_of(sample)) return;
      while (round() || back() || pairs()) {
      }
    }
  }

 private:
  double cost(std::size_t row) const { return rows_[row].cost.value_or(std::numeric_limits<double>::infinity()); }

  // The best of `rows` that runs is where the climb goes on, if it is better; of equals the first. False: it stays.
  bool go_to_best_of(const std::vector<std::size_t>& rows) {
    for (;;) {
      std::size_t best = at_;
      for (const std::size_t i : rows)
        if (cost(i) < cost(best)) best = i;
      if (best == at_) return false;
      if (!runs_ || runs_(rows_[best].point)) {
        at_ = best;
        return true;
      }
      rows_[best].cost.reset();
    }
  }

  // The rows of `points` that are valid. What is new is asked for.
  std::vector<std::size_t> rows_of(const std::vector<Point>& points) {
    std::vector<std::size_t> tried;
    for (const Point& point : points) {
      if (!archive_.valid(point)) continue;
      const auto [found, fresh] = known_.try_emplace(point, rows_.size());
      if (fresh && rows_.size() >= kMost) {
        known_.erase(found);
        break;
      }
      if (fresh) rows_.push_back({point, std::nullopt});
      tried.push_back(found->second);
    }
    score_();
    return tried;
  }
  bool best_of(const std::vector<Point>& points) { return go_to_best_of(rows_of(points)); }

  void add_moves(const Point& from, std::size_t knob, std::vector<Point>& out) const {
    for (std::size_t c = 0; c < archive_.space().knobs[knob].choices.size(); ++c) {
      if (from[knob] == c) continue;
      out.push_back(from);
      out.back()[knob] = static_cast<std::uint16_t>(c);
    }
  }

  bool round() {
    bool moved = false;
    for (std::size_t k = 0; k < archive_.space().knobs.size(); ++k) {
      std::vector<Point> points;
      add_moves(rows_[at_].point, k, points);
      moved = best_of(points) || moved;
    }
    return moved;
  }

  // A categorical knob's choices first: what they need is most of what a kernel is.
  bool pairs() { return pairs_of(true) || pairs_of(false); }

  bool pairs_of(bool categorical) {
    const auto& knobs = archive_.space().knobs;
    for (std::size_t k = 0; k < knobs.size(); ++k) {
      if ((knobs[k].kind == KnobKind::Categorical) != categorical) continue;
      std::vector<Point> alone;
      add_moves(rows_[at_].point, k, alone);
      for (const Point& point : alone) {
        const auto known = known_.find(point);
        if (known != known_.end() && rows_[known->second].cost) continue;
        std::vector<Point> both;
        for (std::size_t other = 0; other < knobs.size(); ++other)
          if (other != k) add_moves(point, other, both);
        if (best_of(both)) return true;
      }
    }
    return false;
  }

  // A choice that was better on the way, and is no better than the default's where the climb stands, may be in the way of another knob: with two
  // slots a ring is as fast at a depth of 2 as at 4, with three it is not. At equal cost only, so that this ends.
  bool back() {
    bool moved = false;
    const Point usual = archive_.space().default_point();
    for (std::size_t k = 0; k < usual.size(); ++k) {
      if (rows_[at_].point[k] == usual[k]) continue;
      Point point = rows_[at_].point;
      point[k] = usual[k];
      for (const std::size_t row : rows_of({point})) {
        if (cost(row) > cost(at_) || (runs_ && !runs_(rows_[row].point))) continue;
        at_ = row;
        moved = true;
      }
    }
    return moved;
  }

  const Archive& archive_;
  std::vector<Observation>& rows_;
  std::function<void()> score_;
  const std::function<bool(const Point&)>& runs_;
  std::size_t sample_, at_ = 0;
  std::unordered_map<Point, std::size_t, PointHash> known_;
};

}  // namespace

std::vector<Observation> analytic_rows(const SearchSpace& space, const AnalyticModel& analytic, Rng& rng) {
  const Archive archive(space);
  std::vector<Observation> rows;
  const auto ask = [&](const Point& point) { rows.push_back({point, std::nullopt}); };
  if (archive.valid(space.default_point())) {
    ask(space.default_point());
    for (const Point& p : archive.neighbours(space.default_point(), true)) {
      if (rows.size() >= kSample / 2) break;
      ask(p);
    }
  }
  while (rows.size() < kSample) {
    const auto point = archive.random_valid(rng);
    if (!point) break;
    ask(*point);
  }
  // A millisecond or two each, for a large model.
  std::size_t scored = 0;
  ThreadPool pool;
  const auto score = [&] {
    pool.for_ranges(static_cast<std::int64_t>(rows.size() - scored), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = scored + static_cast<std::size_t>(begin); i < scored + static_cast<std::size_t>(end); ++i) {
        const double cost = analytic.score(rows[i].point);
        if (std::isfinite(cost) && cost > 0) rows[i].cost = cost;
      }
    });
    scored = rows.size();
  };
  score();
  Climb(archive, rows, score, analytic.runs).run();
  return rows;
}

}  // namespace amk
