// A workspace with many experiments, made by the state machine's own steps in large transactions.
#pragma once

#include <vector>

#include "orchestrator/campaign/campaign.h"

namespace amk::bench {

Json config(std::int64_t n);
Verdict verdict(const Json& config, double latency_us);

// `count` ended experiments over `campaigns` campaigns, outcomes as a search gives them.
Result<std::vector<CampaignId>> fill(Store& store, CampaignService& service, std::int64_t count, int campaigns);

}  // namespace amk::bench
