// Which untried neighbours of the incumbent an agent should look at next. Pure given its callbacks: the clock and the cost model are the caller's.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "orchestrator/strategy/archive.h"
#include "orchestrator/strategy/correction.h"

namespace amk {

struct Suggestion {
  Point point;
  std::size_t knob = 0;  // the one that differs from the incumbent's
  Correction::Estimate estimate;
  bool told_apart = false;  // the model predicts another latency than the incumbent's
};

struct Suggestions {
  std::vector<Suggestion> best;  // most promising first
  std::size_t neighbours = 0;    // untried ones
  std::size_t ranked = 0;        // of them: as many as there was time for
  std::size_t told_apart = 0;    // of those
};

struct SuggestionModel {
  // Cheap, asked for many: as many at once as `at_once` says. Empty: it has no rank.
  std::function<std::vector<std::optional<double>>(std::span<const Point>)> rank_us;
  std::size_t at_once = 1;
  std::function<std::optional<double>(const Point&)> predict_us;  // with proof, asked for what will be shown; empty: it cannot run
  const Correction* correction = nullptr;                         // may be null
  double incumbent_us = 0;                                        // on the scale of the (corrected) predictions
  std::function<bool()> expired;                                  // no more ranking
};

// Knobs take turns, near choices first, so that every knob is looked at before time runs out. With a correction the order is that of expected
// improvement, which counts doubt; without, what is predicted faster comes first, then what the model cannot tell from the incumbent, knobs that
// the archive has not seen moved first, then what is predicted slower. At most two of a knob; one, where the model sees no difference.
Suggestions suggest(const Archive& archive, const Point& incumbent, const SuggestionModel& model, std::size_t wanted);

}  // namespace amk
