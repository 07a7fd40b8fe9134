// The prior of a search, from what the workspace knows. Shared by the service's sources only.
#pragma once

#include <stop_token>

#include "orchestrator/prior/corpus_prior.h"
#include "orchestrator/service/impl.h"

namespace amk {

// Learned from the other campaigns of the workspace (the newest ones first), imported rows as weak evidence, and the cost model; raced as
// learn_prior() says. Deterministic given the seed and the store's other campaigns: a resumed run gets the prior of its first start as long as
// those have not changed. Asked to stop, it comes to an end soon, with a prior of no use.
Result<LearnedPrior> workspace_prior(Service::Impl& impl, const Opened& opened, CampaignId self, std::uint64_t seed, const std::stop_token& stop);

}  // namespace amk
