// Which knobs mattered so far: the share of the variance of log latency that a knob's choice explains, corrected for the number of choices
// (epsilon squared, Kelley 1935), over correct experiments. A search moves knobs together, so choices are confounded: a hint, not a proof, and
// it says on how much it rests. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/error.h"

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

// Grows one experiment at a time, in memory that depends on the number of knobs and choices only.
class KnobImportance {
 public:
  // `choices`: (knob, its choice as text) of one correct experiment. A knob that some experiments lack cannot be compared, nor one with more choices
  // than kMostChoices: those are left out.
  void add(const std::vector<std::pair<std::string, std::string>>& choices, double latency_us);
  // The same with the leaves of a config's canonical text. Fails, changing nothing, when none can be read from it.
  Status add_config(std::string_view canonical, double latency_us);
  // Largest first; knobs that explain nothing are left out. Empty below six observations.
  std::vector<KnobShare> ranked(std::size_t most) const;

  static constexpr std::size_t kMostKnobs = 1024, kMostChoices = 256;

 private:
  struct Group {
    double sum = 0;
    std::int64_t count = 0;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  struct Knob {
    std::string name;
    std::int64_t covered = 0;  // experiments that had it; fewer than all: left out for good
    std::unordered_map<std::string, Group, Hash, std::equal_to<>> choices;
  };
  // What add() does for each knob; `hint` is where it may be, since configs name theirs in one order.
  void count(std::size_t hint, std::string_view knob, std::string_view choice, double y);
  std::optional<double> open_row(double latency_us);

  std::vector<Knob> knobs_;                                                    // those of the first experiment
  std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> index_;  // by name
  double shift_ = 0, sum_ = 0, squares_ = 0;                                   // of log latency - shift_
  std::int64_t rows_ = 0;
};

Json to_json(const KnobShare& share);

}  // namespace amk
