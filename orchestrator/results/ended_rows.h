// Ended experiments of the whole store in the order they ended, in pieces: what exports are made of.
#pragma once

#include <vector>

#include "orchestrator/campaign/campaign.h"
#include "orchestrator/store/store.h"

namespace amk {

struct EndedRow {
  std::int64_t end_seq = 0;
  Experiment experiment;
  CampaignInfo campaign;
};
// At most `count` rows after `end_seq`; fewer: the end.
Result<std::vector<EndedRow>> ended_rows(const Store& store, std::int64_t end_seq, int count);

}  // namespace amk
