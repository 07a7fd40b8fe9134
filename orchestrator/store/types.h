// The words of the store: ids, keys, outcomes. Value types; text forms are fixed (schemas/experiment.schema.json).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace amk {

// Row ids. Text form "c12" and "e345": what users and agents see and pass back.
enum class CampaignId : std::int64_t {};
enum class ExperimentId : std::int64_t {};
constexpr std::int64_t raw(CampaignId id) { return static_cast<std::int64_t>(id); }
constexpr std::int64_t raw(ExperimentId id) { return static_cast<std::int64_t>(id); }
std::string to_string(CampaignId id);
std::string to_string(ExperimentId id);
Result<CampaignId> campaign_id_from(std::string_view text);  // InvalidArgument when it is not of the form "c<number>"
Result<ExperimentId> experiment_id_from(std::string_view text);

// What a campaign is about; at most one campaign per key in a workspace.
struct CampaignKey {
  std::string workload;     // canonical workload id
  std::string gpu;          // target name
  std::string device_kind;  // "cpu" or "cuda"
  std::string regime;
  bool operator==(const CampaignKey&) const = default;
};

enum class CampaignState { Baseline, Optimizing, Done };
std::string_view to_string(CampaignState state);  // "baseline", "optimizing", "done"
Result<CampaignState> campaign_state_from(std::string_view text);

// How an experiment ended. Kept … Rejected are the candidate's own; Lost is the machine's and counts against nobody.
enum class Outcome { Kept, Revert, Inconclusive, Failed, Crash, Timeout, Rejected, Lost };
inline constexpr int kOutcomes = 8;
std::string_view to_string(Outcome outcome);  // "kept", "revert", …
Result<Outcome> outcome_from(std::string_view text);
constexpr bool counts_for_plateau(Outcome o) { return o != Outcome::Kept && o != Outcome::Lost; }

enum class ExperimentState { Queued, Running, Ended };
std::string_view to_string(ExperimentState state);

// A worker's right to report on one experiment. A later generation makes it stale.
struct Lease {
  ExperimentId experiment{};
  std::int64_t generation = 0;
};

}  // namespace amk
