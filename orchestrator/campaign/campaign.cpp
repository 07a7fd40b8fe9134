#include "orchestrator/campaign/campaign.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/parse_json.h"
#include "orchestrator/campaign/service.h"
#include "orchestrator/campaign/transitions.h"

namespace amk {

Result<std::unique_ptr<CampaignService>> CampaignService::create(Store& store) {
  std::unique_ptr<CampaignService> service(new CampaignService(std::make_unique<Impl>(store)));
  const auto released = service->impl_->release("daemon-restarted", service->impl_->boot_us());
  // With a full disk the old rows stay as they are until the next start or expire_leases().
  if (!released && !sql::is_disk_full(released.error())) return tl::unexpected<Error>(released.error());
  return service;
}

CampaignService::CampaignService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CampaignService::~CampaignService() {
  for (const CampaignId id : impl_->time->with_uncharged_time())
    if (!impl_->charge_time(id)) break;
}

void CampaignService::on_end(std::function<void()> callback) { impl_->on_end = std::move(callback); }

Result<CampaignInfo> CampaignService::open(const CampaignKey& key, const CampaignPolicy& policy) {
  if (key.workload.empty() || key.workload.size() > 4096) return bad_field("workload", key.workload, "1 to 4096 bytes");
  if (key.gpu.empty() || key.gpu.size() > 256) return bad_field("gpu", key.gpu, "1 to 256 bytes");
  if (key.device_kind != "cpu" && key.device_kind != "cuda") return bad_field("device_kind", key.device_kind, "cpu, cuda");
  if (key.regime.empty() || key.regime.size() > 256) return bad_field("regime", key.regime, "1 to 256 bytes");
  AMK_TRY(found, find(key));
  if (found) return std::move(*found);
  return impl_->store.write<CampaignInfo>("opening a campaign", [key, policy, wall = impl_->wall_us()](sql::Connection& c) -> Result<CampaignInfo> {
    AMK_TRY(id, rows::find_campaign(c, key));  // another thread may have been faster
    if (!id) {
      AMK_TRY(made, rows::insert_campaign(c, key, policy, wall));
      id = made;
    }
    AMK_TRY(row, rows::load_campaign(c, *id));
    return row.info;
  });
}

Result<std::optional<CampaignInfo>> CampaignService::find(const CampaignKey& key) const {
  return impl_->store.read<std::optional<CampaignInfo>>([&key](sql::Connection& c) -> Result<std::optional<CampaignInfo>> {
    AMK_TRY(id, rows::find_campaign(c, key));
    if (!id) return std::nullopt;
    AMK_TRY(row, rows::load_campaign(c, *id));
    return std::optional(row.info);
  });
}

Result<CampaignInfo> CampaignService::info(CampaignId id) const {
  return impl_->store.read<CampaignInfo>([id](sql::Connection& c) -> Result<CampaignInfo> {
    AMK_TRY(row, rows::load_campaign(c, id));
    return row.info;
  });
}

Result<CampaignId> CampaignService::resolve(std::string_view text) const {
  if (!text.empty()) {
    AMK_TRY(id, campaign_id_from(text));
    AMK_TRY(known, info(id));
    return known.id;
  }
  return impl_->store.read<CampaignId>([](sql::Connection& c) -> Result<CampaignId> {
    AMK_TRY(id, c.value_i64("SELECT id FROM campaigns ORDER BY changed DESC LIMIT 1"));
    if (!id) return fail(ErrorKind::NotFound, "no campaign exists yet: amk_eval, amk_loop or amk_autoresearch starts one", {{"field", "campaign"}});
    return CampaignId{*id};
  });
}

Result<CampaignInfo> CampaignService::set_policy(CampaignId id, const CampaignPolicy& policy) {
  return impl_->store.write<CampaignInfo>("changing a campaign's policy",
                                          [id, policy, extra = impl_->time->uncharged(id)](sql::Connection& c) -> Result<CampaignInfo> {
                                            AMK_TRY(row, rows::load_campaign(c, id));
                                            row.info.policy = policy;
                                            AMK_CHECK(transitions::advance(c, row, extra));
                                            AMK_CHECK(rows::save_campaign(c, row));
                                            return row.info;
                                          });
}

Result<CampaignInfo> CampaignService::reopen(CampaignId id, const std::optional<CampaignPolicy>& policy) {
  return impl_->store.write<CampaignInfo>(
      "reopening a campaign", [id, policy, extra = impl_->time->uncharged(id)](sql::Connection& c) -> Result<CampaignInfo> {
        AMK_TRY(row, rows::load_campaign(c, id));
        if (policy) row.info.policy = *policy;
        if (row.info.state == CampaignState::Done) {
          row.info.state = row.outcomes[static_cast<std::size_t>(Outcome::Kept)] > 0 ? CampaignState::Optimizing : CampaignState::Baseline;
          row.info.done_reason.clear();
          row.non_keeps = 0;
          AMK_TRY(end_seq, rows::next_end_seq(c));
          row.reopened_after = end_seq - 1;
        }
        AMK_CHECK(transitions::advance(c, row, extra));
        if (row.info.state == CampaignState::Done)
          return fail(ErrorKind::Conflict,
                      "campaign " + to_string(id) + " would be done again at once (" + row.info.done_reason + "): change its policy with it",
                      {{"reason", "still-done"}, {"done_reason", row.info.done_reason}, {"policy", to_json(row.info.policy)}});
        AMK_CHECK(rows::save_campaign(c, row));
        return row.info;
      });
}

Status CampaignService::check(CampaignId id) const {
  return impl_->store
      .read<bool>([id](sql::Connection& c) -> Result<bool> {
        AMK_TRY(stored, rows::load_campaign(c, id));
        AMK_TRY(counted, transitions::recount(c, id));
        const auto same = [id](std::string_view what, std::int64_t says, std::int64_t is) -> Status {
          if (says == is) return {};
          return fail(
              ErrorKind::Corrupt,
              "campaign " + to_string(id) + " says " + std::string(what) + " = " + std::to_string(says) + ", its rows say " + std::to_string(is),
              {{"reason", "recount"}, {"field", what}, {"stored", says}, {"counted", is}});
        };
        for (int i = 0; i < kOutcomes; ++i) {
          const auto at = static_cast<std::size_t>(i);
          AMK_CHECK(same(to_string(static_cast<Outcome>(i)), stored.outcomes[at], counted.outcomes[at]));
        }
        AMK_CHECK(same("queued", stored.queued, counted.queued));
        AMK_CHECK(same("running", stored.running, counted.running));
        AMK_CHECK(same("last_seq", stored.last_seq, counted.last_seq));
        AMK_CHECK(same("quarantined", stored.quarantined, counted.quarantined));
        AMK_CHECK(same("claims", stored.claims, counted.claims));
        AMK_CHECK(same("non_keeps", stored.non_keeps, counted.non_keeps));
        AMK_CHECK(same("spent_us", stored.spent_us, counted.spent_us));
        AMK_CHECK(same("state", static_cast<std::int64_t>(stored.info.state), static_cast<std::int64_t>(counted.info.state)));
        return true;
      })
      .map([](bool) {});
}

Result<std::optional<Experiment>> CampaignService::best(CampaignId id) const {
  return impl_->store.read<std::optional<Experiment>>([id](sql::Connection& c) { return rows::best_of(c, id); });
}
Result<std::optional<Experiment>> CampaignService::baseline(CampaignId id) const {
  return impl_->store.read<std::optional<Experiment>>([id](sql::Connection& c) { return rows::baseline_of(c, id); });
}
Result<double> CampaignService::speedup(CampaignId id) const {
  return impl_->store.read<double>([id](sql::Connection& c) { return rows::speedup_of(c, id); });
}
Result<Experiment> CampaignService::experiment(ExperimentId id) const {
  return impl_->store.read<Experiment>([id](sql::Connection& c) { return rows::load_experiment(c, id); });
}

Result<std::int64_t> CampaignService::replay(CampaignId id, std::int64_t end_seq, const std::function<bool(const Experiment&)>& each) const {
  // The order first, then the rows in pieces, so that a long replay holds no snapshot (and in rollback mode no commit) up. Ended rows never
  // change.
  AMK_TRY(order, impl_->store.read<std::vector<rows::EndedPlace>>([&](sql::Connection& c) { return rows::ended_places(c, id, end_seq); }));
  constexpr std::size_t kPiece = 1000;
  std::int64_t last = end_seq;
  for (std::size_t from = 0; from < order.size(); from += kPiece) {
    AMK_TRY(piece, impl_->store.read<std::vector<Experiment>>([&](sql::Connection& c) -> Result<std::vector<Experiment>> {
      std::vector<Experiment> out;
      for (std::size_t i = from; i < std::min(from + kPiece, order.size()); ++i) {
        AMK_TRY(experiment, rows::load_experiment(c, ExperimentId{order[i].id}));
        out.push_back(std::move(experiment));
      }
      return out;
    }));
    for (std::size_t i = 0; i < piece.size(); ++i) {
      last = order[from + i].end_seq;
      if (!each(piece[i])) return last;
    }
  }
  return last;
}

Result<bool> CampaignService::tried(CampaignId id, const std::string& schedule_id, const Json& canonical_config) const {
  return impl_->store.read<bool>([&](sql::Connection& c) -> Result<bool> {
    AMK_TRY(config, rows::find_config(c, schedule_id, canonical_dump(canonical_config)));
    if (!config) return false;
    AMK_TRY(row, c.query("SELECT 1 FROM experiments WHERE config = ?1 AND campaign = ?2 AND ifnull(outcome, -1) <> 7 LIMIT 1", *config, raw(id)));
    return row.next();
  });
}

Status CampaignService::admissible(CampaignId id, const std::string& schedule_id, const Json& canonical_config) const {
  return impl_->store
      .read<bool>([&](sql::Connection& c) -> Result<bool> {
        AMK_TRY(config, rows::find_config(c, schedule_id, canonical_dump(canonical_config)));
        if (config) AMK_CHECK(rows::refuse_quarantined(c, id, *config));
        return true;
      })
      .map([](bool) {});
}

}  // namespace amk
