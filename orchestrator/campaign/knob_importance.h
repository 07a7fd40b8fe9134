// Which knobs mattered so far: the share of the variance of log latency that a knob's choice explains, corrected for the number of choices
// (epsilon squared, Kelley 1935), over correct experiments. A search moves knobs together, so choices are confounded: a hint, not a proof, and
// it says on how much it rests. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/base/json_fwd.h"

namespace amk {

struct KnobShare {
  std::string knob;
  double explains = 0;           // 0…1
  std::size_t observations = 0;  // correct experiments
  std::size_t choices = 0;       // different ones seen
  std::string confidence;        // "low" below 15 observations or 4 a choice, "high" from 60 and 10, else "medium"
};

// Epsilon squared of one knob: sums of squares between its groups and in total, over n rows in g groups; 0 when it explains nothing (or g < 2, or no
// group has a second row). One definition for every view of it.
double explained_share(double between, double total, double n, double g);
const char* share_confidence(std::size_t observations, std::size_t choices);  // KnobShare::confidence

class KnobImportance {
 public:
  // `choices`: (knob, its choice as text) of one correct experiment; knobs may be absent from some.
  void add(const std::vector<std::pair<std::string, std::string>>& choices, double latency_us);
  // Largest first; knobs that explain nothing are left out. Empty below six observations.
  std::vector<KnobShare> ranked(std::size_t most) const;

 private:
  std::vector<std::pair<std::vector<std::pair<std::string, std::string>>, double>> rows_;
};

// Every leaf of a config as (dotted path, text); lists are leaves.
std::vector<std::pair<std::string, std::string>> config_leaves(const Json& config);

Json to_json(const KnobShare& share);

}  // namespace amk
