// A row of results: what differs between experiments, without nulls and without the config (experiments and diffs show it).
#pragma once

#include <map>

#include "orchestrator/campaign/rows.h"

namespace amk {

Json row_json(const Experiment& experiment, const CampaignInfo& campaign);

// Campaigns looked up once a page.
class CampaignCache {
 public:
  Result<const CampaignInfo*> get(sql::Connection& c, CampaignId id);

 private:
  std::map<CampaignId, CampaignInfo> known_;
};

}  // namespace amk
