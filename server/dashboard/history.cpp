#include "server/dashboard/history.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "core/base/number_text.h"
#include "orchestrator/campaign/phase_sum.h"
#include "server/dashboard/downsample.h"

namespace amk::dashboard {
namespace {

constexpr std::size_t kMostBars = 240, kKnobs = 8, kChoices = 6;

// Six digits: what a plot can show, at a third of the bytes.
double short_number(double v) {
  const std::string text = with_digits(v, 6);
  double out = v;  // what is no number stays it
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

// The config by the names of its search space, as agents know them; by its own names when the workload is not here any more. Nothing for a
// config outside the space's choices, which amk_propose leaves out as well.
std::optional<Json> knobs_of(const Workload* workload, const Json& config) {
  if (workload == nullptr) return config;
  const auto point = workload->point_of(config);
  if (!point) return std::nullopt;
  Json out = Json::object();
  const SearchSpace& space = workload->space();
  for (std::size_t k = 0; k < space.knobs.size(); ++k) out[space.knobs[k].name] = space.knobs[k].choices[(*point)[k]];
  return out;
}

}  // namespace

Result<Json> History::series(std::size_t points) {
  const std::lock_guard lock(series_mutex_);
  AMK_CHECK(service_.result_rows().series(id_, series_upto_, [this](const SeriesPoint& p) {
    series_upto_ = p.end_seq;  // point by point: what was read before a failure is not read again
    const bool drawn = p.latency_us && !p.quarantined;
    latency_us_.push_back(drawn ? static_cast<float>(*p.latency_us) : std::numeric_limits<float>::quiet_NaN());
    outcomes_.push_back(static_cast<std::uint8_t>(p.outcome));
    experiments_.push_back(raw(p.experiment));
    if (p.latency_us) (p.predicted ? any_predicted_ : any_measured_) = true;
    const bool kept = p.outcome == Outcome::Kept && p.latency_us;
    if (kept) best_.push_back({static_cast<std::uint32_t>(outcomes_.size()), raw(p.experiment), *p.latency_us, p.mad_us});
    if (p.bound_us && (kept || best_.empty())) floor_us_ = p.bound_us;
  }));

  Json n = Json::array(), latency = Json::array(), outcome = Json::array(), experiment = Json::array();
  for (const std::size_t i : keep_extremes(latency_us_, points)) {
    n.push_back(i + 1);
    latency.push_back(short_number(latency_us_[i]));
    outcome.push_back(outcomes_[i]);
    experiment.push_back(to_string(ExperimentId{experiments_[i]}));
  }
  Json best = {{"n", Json::array()}, {"latency_us", Json::array()}, {"mad_us", Json::array()}, {"experiment", Json::array()}};
  for (const Step& step : best_) {
    best["n"].push_back(step.n);
    best["latency_us"].push_back(short_number(step.latency_us));
    best["mad_us"].push_back(step.mad_us ? Json(*step.mad_us) : Json(nullptr));
    best["experiment"].push_back(to_string(ExperimentId{step.experiment}));
  }
  const OutcomeTimeline timeline = outcome_timeline(outcomes_, kMostBars);
  Json names = Json::array();
  for (int i = 0; i < kOutcomes; ++i) names.push_back(to_string(static_cast<Outcome>(i)));
  return Json{
      {"campaign", to_string(id_)},
      {"total", outcomes_.size()},
      {"kind", any_measured_    ? Json("measured-gpu")
               : any_predicted_ ? Json("predicted")
                                : Json(nullptr)},
      {"floor_us", floor_us_ ? Json(*floor_us_) : Json(nullptr)},
      {"points", {{"n", std::move(n)}, {"latency_us", std::move(latency)}, {"outcome", std::move(outcome)}, {"experiment", std::move(experiment)}}},
      {"best", std::move(best)},
      {"timeline", {{"per", timeline.per}, {"counts", timeline.counts}}},
      {"outcomes", std::move(names)}};
}

Result<Json> History::importance() {
  const std::lock_guard lock(importance_mutex_);
  AMK_TRY(info, service_.campaigns().info(id_));
  std::shared_ptr<const Workload> workload;  // opened when there is something new, and not held: an open checkpoint is not small
  bool asked = false;
  const auto upto = service_.campaigns().replay(id_, importance_upto_, [&](const Experiment& e) {
    if (!std::exchange(asked, true))
      if (auto opened = service_.workloads().open(info.key.workload, info.key.gpu, "cpu")) workload = opened->workload;
    add_phases(e.phases, e.duration_us, phases_s_);
    if (!e.latency_us || e.quarantined) return true;
    if (const auto knobs = knobs_of(workload.get(), e.config)) importance_.add(*knobs, *e.latency_us);
    return true;
  });
  if (!upto) {
    phases_s_.clear();
    importance_ = {};  // how far it came is not known: begin again next time
    importance_upto_ = 0;
    return tl::unexpected<Error>(upto.error());
  }
  importance_upto_ = *upto;
  Json phases = Json::object();
  for (const auto& [name, s] : phases_s_)
    if (s > 0) phases[name] = short_number(s);
  return Json{{"campaign", to_string(id_)}, {"knobs", importance_.ranked(kKnobs, kChoices)}, {"phases_s", std::move(phases)}};
}

Result<std::shared_ptr<History>> Histories::of(const std::string& campaign) {
  AMK_TRY(id, campaign_id_from(campaign));
  AMK_CHECK(service_.campaigns().info(id));
  const std::lock_guard lock(mutex_);
  for (auto it = kept_.begin(); it != kept_.end(); ++it)
    if ((*it)->id() == id) {
      kept_.splice(kept_.begin(), kept_, it);
      return kept_.front();
    }
  kept_.push_front(std::make_shared<History>(service_, id));
  if (kept_.size() > kKept) kept_.pop_back();
  return kept_.front();
}

}  // namespace amk::dashboard
