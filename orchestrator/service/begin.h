// Begins an experiment of a loop that a plateau must not end, while other loops on the same campaign begin, plateau and reopen too.
#pragma once

#include <functional>
#include <string>

#include "orchestrator/campaign/campaign.h"

namespace amk {

// The three calls on one campaign; functions, so that a test can order them as two racing loops would.
struct CampaignCalls {
  std::function<Result<Ticket>()> begin;
  std::function<Result<CampaignInfo>()> info;
  std::function<Result<CampaignInfo>()> reopen;
};

struct Begun {
  std::optional<Ticket> ticket;
  std::string done_reason;  // without a ticket: why the campaign is over
};

// A campaign that is done ends the loop, unless a plateau ended it and `ignore_plateau`: then it is reopened and begun again. Between any two of
// these calls another loop may have reopened it (begin again) or brought it to its next plateau (reopen again). Errors of begin() other than
// campaign-done, and of the other two, are returned as they are; Conflict when others win the race a hundred times.
Result<Begun> begin_or_reopen(const CampaignCalls& calls, bool ignore_plateau);

}  // namespace amk
