// Shared by the service's sources only.
#pragma once

#include "orchestrator/service/service.h"

namespace amk {

struct Service::Impl {
  Impl(ServiceOptions o, Store& s, Judge& j, std::unique_ptr<CampaignService> c)
      : options(std::move(o)),
        store(s),
        judge(j),
        campaign_service(std::move(c)),
        campaigns(*campaign_service),
        rows(s),
        files(s),
        workloads(options.gpus_dir, j) {}

  static CampaignKey key_of(const Opened& opened);
  Result<CampaignInfo> open_campaign(const Opened& opened, const CampaignPolicy& policy = {});
  // The campaign's best when it is asked for, kept in `held` as well. Both must outlive what is returned.
  IncumbentNow best_of(CampaignId campaign, std::optional<Experiment>& held);

  ServiceOptions options;
  Store& store;
  Judge& judge;
  std::unique_ptr<CampaignService> campaign_service;
  CampaignService& campaigns;
  Results rows;
  ResultFiles files;
  Workloads workloads;
};

// Fills `versus` of a predicted verdict: predictions are exact numbers, so the interval has no width.
void compare_predicted(Verdict& verdict, const std::optional<Experiment>& incumbent);

// {"knob": [from, to]} for every knob in which two canonical configs differ.
Json config_difference(const SearchSpace& space, const Workload& workload, const Json& from, const Json& to);

}  // namespace amk
