// One idea of where to look next, over a shared archive of what is known. Strategies are made of proposers: alone, or several in a portfolio.
// Deterministic given the archive's history and the random numbers. Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "orchestrator/strategy/archive.h"

namespace amk {

class Trend;

class Proposer {
 public:
  virtual ~Proposer() = default;
  virtual std::string_view name() const = 0;
  // A valid point that the archive does not know; empty when this proposer has no idea at present.
  virtual std::optional<Point> propose(const Archive& archive, Rng& rng) = 0;
  // A result, already recorded in the archive; `mine`: this proposer asked for it.
  virtual void observe(const Archive&, const Observation&, bool /*mine*/) {}
};

std::unique_ptr<Proposer> random_proposer();
// Adjacent one-knob moves, first improvement in random order; a fresh random start when the neighbourhood is exhausted.
std::unique_ptr<Proposer> local_proposer();
// The same, but a new start is the best point with two or three knobs changed (basin hopping), accepted when not worse by much.
std::unique_ptr<Proposer> iterated_local_proposer();
// Tournament among the best, uniform crossover, mutation.
std::unique_ptr<Proposer> evolutionary_proposer();
// Tree-ensemble surrogate of log cost; expected improvement over the neighbourhoods of the best points and a random pool.
std::unique_ptr<Proposer> surrogate_proposer();
// Variable neighbourhood descent from several elites, each neighbourhood ranked by a nearest-neighbour surrogate; what is known is tabu.
std::unique_ptr<Proposer> vnd_proposer();
// Gaussian process over log cost; expected improvement over the neighbourhoods of the best points and a pool of random ones.
std::unique_ptr<Proposer> gaussian_proposer(std::shared_ptr<const Trend> trend);  // may be null
std::unique_ptr<Proposer> cold_gaussian_proposer();

}  // namespace amk
