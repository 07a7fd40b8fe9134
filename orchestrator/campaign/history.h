// What happened in a campaign, for its report: the course of the best, what mattered, where the time went, what was believed. Read inside the
// caller's transaction.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/base/json_fwd.h"
#include "orchestrator/campaign/rows.h"

namespace amk {

// {"course": [{"experiment", "n", "latency_us"}…], "knob_importance": […], "time_by_phase_s": {…}, "hypotheses": […], "floor_us", …}
Result<Json> history_json(sql::Connection& c, CampaignId id);

// Charts of a report as (name, SVG): "best-so-far", "knobs", "outcomes", "phases".
std::vector<std::pair<std::string, std::string>> report_plots(const Json& report);

}  // namespace amk
