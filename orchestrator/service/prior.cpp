#include "orchestrator/service/prior.h"

#include <cmath>
#include <limits>
#include <map>

#include "core/base/json.h"
#include "orchestrator/store/sqlite.h"

namespace amk {
namespace {

constexpr int kCampaigns = 12;           // the newest others
constexpr std::size_t kRowsEach = 4000;  // of one campaign, the first ones that ended
constexpr int kForeignRows = 5000;
constexpr int kOpened = 4;  // other workloads that are opened for their features

// How far rows are believed. A prediction says little about a measurement; what others wrote was not checked here.
constexpr double kSameKind = 1.0, kOtherKind = 0.3, kForeign = 0.3;

struct Other {
  CampaignId id{};
  CampaignKey key;
};

Result<std::vector<Other>> other_campaigns(const Store& store, CampaignId self) {
  return store.read<std::vector<Other>>([self](sql::Connection& c) -> Result<std::vector<Other>> {
    AMK_TRY(row,
            c.query("SELECT id, workload, gpu, device_kind, regime FROM campaigns WHERE id != ?1 ORDER BY id DESC LIMIT ?2", raw(self), kCampaigns));
    std::vector<Other> out;
    for (;;) {
      AMK_TRY(more, row.next());
      if (!more) return out;
      out.push_back({CampaignId{row.i64(0)}, {row.text(1), row.text(2), row.text(3), row.text(4)}});
    }
  });
}

Features features_of(const Json& json) {
  Features out;
  for (const auto& [name, value] : json.items()) {
    if (value.is_number()) out[name] = value.get<double>();
    if (value.is_boolean()) out[name] = value.get<bool>() ? 1 : 0;
  }
  return out;
}

// Features of (workload, gpu), asking each pair once. A workload that no longer opens (a checkpoint that went) has none.
class FeatureBook {
 public:
  FeatureBook(Service::Impl& impl, const Opened& opened) : impl_(impl) {
    known_[{opened.workload->id(), opened.workload->target().name}] = features_of(opened.workload->features());
  }
  const Features& of(const std::string& workload, const std::string& gpu) {
    const auto [at, fresh] = known_.try_emplace({workload, gpu});
    if (fresh && opened_ < kOpened) {
      ++opened_;
      if (const auto other = impl_.workloads.open(workload, gpu, "cpu")) at->second = features_of(other->workload->features());
    }
    return at->second;
  }

 private:
  Service::Impl& impl_;
  std::map<std::pair<std::string, std::string>, Features> known_;
  int opened_ = 0;
};

void tell(PriorSource& source, const Workload& workload, const Json& config, std::optional<double> cost) {
  const auto point = config.is_object() ? workload.point_of(config) : Result<Point>(fail(ErrorKind::InvalidArgument, "no config"));
  if (point && workload.space().violated(*point) == nullptr)
    source.rows.push_back({*point, cost});
  else
    ++source.untold;
}

}  // namespace

Result<LearnedPrior> workspace_prior(Service::Impl& impl, const Opened& opened, CampaignId self, std::uint64_t seed, const std::stop_token& stop) {
  const Workload& workload = *opened.workload;
  FeatureBook features(impl, opened);
  const Features mine = features.of(workload.id(), workload.target().name);
  std::vector<PriorSource> sources;
  AMK_TRY(others, other_campaigns(impl.store, self));
  for (const Other& other : others) {
    PriorSource source;
    source.name = other.key.workload + " on " + other.key.gpu + " (" + other.key.device_kind + ")";
    source.trust = other.key.device_kind == opened.device_kind() ? kSameKind : kOtherKind;
    AMK_CHECK(impl.campaigns.replay(other.id, 0, [&](const Experiment& e) {
      if (e.outcome != Outcome::Lost) tell(source, workload, e.config, e.quarantined ? std::nullopt : e.latency_us);
      return source.rows.size() < kRowsEach;
    }));
    if (!source.rows.empty()) source.features = features.of(other.key.workload, other.key.gpu);
    if (!source.rows.empty() || source.untold > 0) sources.push_back(std::move(source));
  }
  // Rows of others: one source a (file, workload, gpu), for their latencies compare among themselves only.
  AMK_TRY(rows, foreign_rows(impl.store, "", "", kForeignRows));
  std::map<std::string, PriorSource> foreign;
  for (const ForeignRow& r : rows) {
    PriorSource& source = foreign[r.source + ": " + r.workload + " on " + r.gpu];
    if (source.features.empty()) source.features = features.of(r.workload, r.gpu);
    source.trust = kForeign;
    tell(source, workload, r.config, r.latency_us);
  }
  for (auto& [name, source] : foreign) {
    source.name = name;
    sources.push_back(std::move(source));
  }
  const AnalyticModel analytic{[&](const Point& point) {
                                 if (stop.stop_requested()) return std::numeric_limits<double>::quiet_NaN();
                                 const auto us = workload.screen_us(workload.config_at(point));
                                 return us ? *us : std::numeric_limits<double>::quiet_NaN();
                               },
                               [&](const Point& point) { return workload.rank_us(workload.config_at(point)).has_value(); }};
  return learn_prior(workload.space(), mine, sources, analytic, seed);
}

}  // namespace amk
