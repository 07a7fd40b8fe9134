// Random, local and iterated local search.
#include <algorithm>
#include <cmath>

#include "orchestrator/strategy/moves.h"
#include "orchestrator/strategy/proposer.h"

namespace amk {
namespace {

class RandomProposer final : public Proposer {
 public:
  std::string_view name() const override { return "random"; }
  std::optional<Point> propose(const Archive& archive, Rng& rng) override { return fresh_point(archive, rng); }
};

class LocalProposer : public Proposer {
 public:
  explicit LocalProposer(bool iterated) : iterated_(iterated) {}
  std::string_view name() const override { return iterated_ ? "ils" : "local"; }

  std::optional<Point> propose(const Archive& archive, Rng& rng) override {
    if (!centre_ && archive.best() != nullptr && !awaiting_start_) move_to(archive, archive.best()->point, *archive.best()->cost, rng);
    while (!frontier_.empty()) {
      Point point = std::move(frontier_.back());
      frontier_.pop_back();
      if (!archive.known(point)) return point;
    }
    // Exhausted: a new start. Its own result decides whether it becomes the centre.
    std::optional<Point> start;
    if (iterated_ && archive.best() != nullptr) {
      if (centre_ && (!home_cost_ || centre_cost_ < *home_cost_)) home_ = centre_, home_cost_ = centre_cost_;
      const Point& from = home_ ? *home_ : archive.best()->point;
      start = perturbed(archive, from, 2 + static_cast<int>(rng.below(2)), rng);
    }
    if (!start) start = fresh_point(archive, rng);
    awaiting_start_ = start;
    centre_.reset();
    return start;
  }

  void observe(const Archive& archive, const Observation& o, bool) override {
    // Deterministic order of the new frontier without the caller's generator: seeded by the archive's size.
    Rng rng(mix64(0xF00D ^ archive.observations().size()));
    if (awaiting_start_ && o.point == *awaiting_start_) {
      awaiting_start_.reset();
      if (o.cost) move_to(archive, o.point, *o.cost, rng);
      return;
    }
    if (o.cost && centre_ && *o.cost < centre_cost_) move_to(archive, o.point, *o.cost, rng);
  }

 private:
  void move_to(const Archive& archive, const Point& point, double cost, Rng& rng) {
    centre_ = point;
    centre_cost_ = cost;
    frontier_ = archive.neighbours(point, false);
    shuffle(frontier_, rng);
  }

  bool iterated_;
  std::optional<Point> centre_, awaiting_start_, home_;
  double centre_cost_ = 0;
  std::optional<double> home_cost_;
  std::vector<Point> frontier_;
};

class EvolutionaryProposer final : public Proposer {
 public:
  std::string_view name() const override { return "evolutionary"; }

  std::optional<Point> propose(const Archive& archive, Rng& rng) override {
    const std::vector<const Observation*> elite = best_observations(archive, 16);
    if (elite.size() < 4) return fresh_point(archive, rng);
    for (int t = 0; t < 200; ++t) {
      const Point& a = tournament(elite, rng);
      const Point& b = tournament(elite, rng);
      Point child = a;
      for (std::size_t k = 0; k < child.size(); ++k)
        if (rng.below(2) == 1) child[k] = b[k];
      // One mutation on average; a step for ordinal knobs half of the time, else any choice.
      for (std::size_t k = 0; k < child.size(); ++k)
        if (rng.below(child.size()) == 0) mutate_knob(archive.space(), child, k, rng);
      if (archive.valid(child) && !archive.known(child)) return child;
    }
    return fresh_point(archive, rng);
  }

 private:
  static const Point& tournament(const std::vector<const Observation*>& elite, Rng& rng) {
    return elite[std::min(rng.below(elite.size()), rng.below(elite.size()))]->point;  // elite is sorted
  }
};

}  // namespace

std::unique_ptr<Proposer> random_proposer() { return std::make_unique<RandomProposer>(); }
std::unique_ptr<Proposer> local_proposer() { return std::make_unique<LocalProposer>(false); }
std::unique_ptr<Proposer> iterated_local_proposer() { return std::make_unique<LocalProposer>(true); }
std::unique_ptr<Proposer> evolutionary_proposer() { return std::make_unique<EvolutionaryProposer>(); }

}  // namespace amk
