// Shared forms of campaigns and experiments in what tools return.
#pragma once

#include <optional>
#include <string>

#include "orchestrator/campaign/rows.h"

namespace amk {

std::string utc_text(std::int64_t wall_us);  // 2026-01-02T03:04:05Z
Json or_null(const std::optional<double>& value);
Json or_null(const std::string& text);                         // empty: null
Json point_json(const std::optional<Experiment>& experiment);  // a best or baseline; null when absent
Json key_json(const CampaignInfo& info);                       // campaign, its key, state, done_reason, revision
Json counts_json(const rows::Campaign& campaign);              // by outcome
std::optional<double> speedup(const std::optional<Experiment>& baseline, const std::optional<Experiment>& best);

}  // namespace amk
