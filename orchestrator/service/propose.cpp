// What an agent reads before it tries something: the space, the incumbent, what was tried around it, which knobs mattered, what to try next.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/base/parallel.h"
#include "orchestrator/campaign/knob_importance.h"
#include "orchestrator/service/fit_reply.h"
#include "orchestrator/service/impl.h"
#include "orchestrator/service/suggestions.h"
#include "orchestrator/strategy/archive.h"
#include "orchestrator/strategy/correction.h"

namespace amk {
namespace {

// `value` without the members that are as in `defaults`: what a config lacks is a default.
Json without_defaults(const Json& value, const Json& defaults) {
  if (!value.is_object() || !defaults.is_object()) return value;
  Json out = Json::object();
  for (const auto& [key, member] : value.items()) {
    const auto given = defaults.find(key);
    if (given == defaults.end() || *given != member) out[key] = given == defaults.end() ? member : without_defaults(member, *given);
  }
  return out;
}

// What to put in place of keys of `from` to get `to`: its keys that differ, each whole but for what is a default.
Json changed_keys(const Json& from, const Json& to, const Json& defaults) {
  Json out = Json::object();
  for (const auto& [key, value] : to.items()) {
    const auto at = from.find(key);
    if (at == from.end() || *at != value) out[key] = without_defaults(value, defaults.value(key, Json(nullptr)));
  }
  return out;
}

constexpr std::size_t kSuggestions = 5;
constexpr std::size_t kNeighboursShown = 6;

// For predictions of rows and of suggestions each: a large model costs 5 to 13 ms a row. In the thread's processor time, so that what an agent is
// told does not depend on what else the machine does; but it does not wait for ever.
class PredictionBudget {
 public:
  bool spent() const { return processor_us() > until_processor_us_ || std::chrono::steady_clock::now() > until_; }

 private:
  static std::int64_t processor_us() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return std::int64_t{t.tv_sec} * 1'000'000 + t.tv_nsec / 1000;
  }
  static constexpr std::int64_t kProcessorUs = 1'000'000;
  static constexpr std::chrono::seconds kElapsed{4};
  std::int64_t until_processor_us_ = processor_us() + kProcessorUs;
  std::chrono::steady_clock::time_point until_ = std::chrono::steady_clock::now() + kElapsed;
};

// Ranks of several configs at a time, on as many cores.
class Ranking {
 public:
  std::size_t at_once() const { return static_cast<std::size_t>(pool_.size()); }
  std::vector<std::optional<double>> of(const Workload& workload, std::span<const Json> configs) {
    std::vector<std::optional<double>> out(configs.size());
    pool_.for_ranges(static_cast<std::int64_t>(configs.size()), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
        if (const auto us = workload.rank_us(configs[i])) out[i] = *us;
    });
    return out;
  }

 private:
  static constexpr int kMostCores = 8;
  ThreadPool pool_{std::min(kMostCores, resolve_threads(0))};
};

struct Tried {
  Experiment experiment;
  Point point;
};

double rounded(double us) { return std::round(us * 1000) / 1000; }  // nanoseconds: what is shown, not what is stored

Json knob_importance(const SearchSpace& space, const std::vector<Tried>& tried) {
  constexpr std::size_t kShown = 5;
  KnobImportance importance;
  for (const Tried& t : tried) {
    if (!t.experiment.latency_us || t.experiment.quarantined) continue;
    std::vector<std::pair<std::string, std::string>> choices;
    for (std::size_t k = 0; k < space.knobs.size(); ++k) choices.emplace_back(space.knobs[k].name, std::to_string(t.point[k]));
    importance.add(choices, *t.experiment.latency_us);
  }
  Json out = Json::array();
  for (const KnobShare& share : importance.ranked(kShown)) out.push_back(to_json(share));
  return out;
}

// What the campaign's rows say of the cost model: of the newest ones, as many as there is time for, since each costs a prediction.
std::unique_ptr<const Correction> correction_of(const Workload& workload, const std::vector<Tried>& tried) {
  constexpr std::size_t kRows = 48;
  std::vector<Correction::Row> rows;
  const PredictionBudget budget;
  std::vector<const Tried*> newest;
  for (auto it = tried.rbegin(); it != tried.rend() && newest.size() < kRows; ++it)
    if (it->experiment.latency_us && !it->experiment.quarantined) newest.push_back(&*it);
  Ranking ranking;
  for (std::size_t i = 0; i < newest.size() && (i == 0 || !budget.spent());) {
    std::vector<Json> configs;
    for (std::size_t k = i; k < std::min(newest.size(), i + ranking.at_once()); ++k) configs.push_back(newest[k]->experiment.config);
    for (const auto& us : ranking.of(workload, configs)) {
      if (us) rows.push_back({newest[i]->point, *newest[i]->experiment.latency_us, *us});
      ++i;
    }
  }
  return Correction::learn(workload.space(), rows);
}

// `now_us`: the incumbent's latency on the scale of the predictions. `correction` may be null. Fills out["suggestions"] and what they were chosen
// from.
void add_suggestions(Json& out, const Workload& workload, const Point& incumbent, const Archive& archive, double now_us,
                     const Correction* correction) {
  const PredictionBudget budget;
  const auto value = [](const Result<double>& us) { return us ? std::optional(*us) : std::nullopt; };
  SuggestionModel model;
  Ranking ranking;
  model.at_once = ranking.at_once();
  model.rank_us = [&](std::span<const Point> points) {
    std::vector<Json> configs;
    for (const Point& p : points) configs.push_back(workload.config_at(p));
    return ranking.of(workload, configs);
  };
  model.predict_us = [&](const Point& p) { return value(workload.predict_us(workload.config_at(p))); };
  model.correction = correction;
  model.incumbent_us = now_us;
  model.expired = [&] { return budget.spent(); };
  const Suggestions chosen = suggest(archive, incumbent, model, kSuggestions);

  const SearchSpace& space = workload.space();
  const Json now = workload.config_at(incumbent), defaults = workload.default_config();
  for (const Suggestion& s : chosen.best) {
    const Knob& knob = space.knobs[s.knob];
    const double change = 100.0 * (s.estimate.us / now_us - 1.0);
    std::string why = knob.name + " " + knob.choices[incumbent[s.knob]].dump() + " -> " + knob.choices[s.point[s.knob]].dump() + ": ";
    why += s.told_apart ? "predicted " + with_digits(std::abs(change), 4) + (change < 0 ? "% faster" : "% slower")
                        : std::string("the cost model cannot tell it from the incumbent; an evaluation can");
    // `set`: what to put into the incumbent's config. A knob's name alone does not say it: one group of operators is a choice of the whole list.
    Json row = {{"change", {{knob.name, knob.choices[s.point[s.knob]]}}},
                {"set", changed_keys(now, workload.config_at(s.point), defaults)},
                {"predicted_us", rounded(s.estimate.us)}};
    if (correction != nullptr) {
      row["ci95_us"] = {rounded(s.estimate.low_us), rounded(s.estimate.high_us)};
      why += " (cost model, corrected by " + std::to_string(correction->rows()) + " experiments)";
    }
    row["why"] = std::move(why);
    out["suggestions"].push_back(std::move(row));
  }
  out["suggested_from"] = {{"untried_neighbours", chosen.neighbours}, {"predicted", chosen.ranked}, {"told_apart", chosen.told_apart}};
}

}  // namespace

Result<Json> Service::propose(const std::string& model, const std::string& gpu, const std::string& device) {
  AMK_TRY(opened, impl_->workloads.open(model, gpu, device));
  const Workload& workload = *opened.workload;
  const SearchSpace& space = workload.space();
  // Who only asks starts none.
  AMK_TRY(campaign, impl_->campaigns.find(Impl::key_of(opened)));
  std::optional<Experiment> best;
  if (campaign) {
    AMK_TRY(found, impl_->campaigns.best(campaign->id));
    best = std::move(found);
  }
  AMK_TRY(incumbent, workload.canonical(best ? best->config : workload.default_config()));

  std::vector<Tried> tried;
  Archive archive(space);
  std::map<std::string, int> counts;
  const auto add = [&](const Experiment& e) {
    if (e.outcome) ++counts[std::string(to_string(*e.outcome))];
    if (auto point = workload.point_of(e.config); point && e.outcome != Outcome::Lost) {
      archive.record({*point, e.latency_us});
      tried.push_back({e, *point});
    }
    return true;
  };
  if (campaign) AMK_CHECK(impl_->campaigns.replay(campaign->id, 0, add));

  Json around = Json::array();  // one knob away from the incumbent, newest first
  const auto incumbent_point = workload.point_of(incumbent);
  if (incumbent_point) {
    archive.mark_asked(*incumbent_point);
    for (auto it = tried.rbegin(); it != tried.rend() && around.size() < kNeighboursShown; ++it) {
      std::size_t differing = 0, at = 0;
      for (std::size_t k = 0; k < it->point.size(); ++k)
        if (it->point[k] != (*incumbent_point)[k]) ++differing, at = k;
      if (differing != 1) continue;
      Json row = {{"change", {{space.knobs[at].name, space.knobs[at].choices[it->point[at]]}}},
                  {"outcome", it->experiment.outcome ? to_string(*it->experiment.outcome) : "running"}};
      if (it->experiment.latency_us) row["latency_us"] = rounded(*it->experiment.latency_us);
      around.push_back(std::move(row));
    }
  }
  const auto predicted = workload.predict_us(incumbent);

  Json out = {{"workload", workload.id()},
              {"gpu", workload.target().name},
              {"device", opened.device_kind()},
              {"campaign", campaign ? Json(to_string(campaign->id)) : Json(nullptr)}};
  out["incumbent"] = incumbent;
  out["incumbent_is"] = best ? "best" : "default";
  if (best && best->latency_us) out["incumbent_latency_us"] = *best->latency_us;
  out["incumbent_predicted_us"] = predicted ? Json(*predicted) : Json(nullptr);
  AMK_TRY(tuned, workload.tuned());
  if (!tuned.is_null()) {
    if (tuned.contains("config")) {
      AMK_TRY(config, workload.canonical(tuned["config"]));
      if (workload.schedule_id(config) == workload.schedule_id(incumbent))
        tuned = {{"longer_contexts", tuned.value("longer_contexts", Json::array())}};
    }
    if (tuned.contains("config") || !tuned["longer_contexts"].empty()) out["tuned"] = std::move(tuned);
  }
  out["search_space"] = to_json(space);
  out["space_size"] = space.size();
  out["tried"] = {{"experiments", tried.size()}, {"counts", counts}, {"around_incumbent", around}};
  out["knobs_that_matter"] = knob_importance(space, tried);
  out["suggestions"] = Json::array();
  if (incumbent_point && predicted) {
    const auto correction = correction_of(workload, tried);
    const double now_us = correction ? correction->at(*incumbent_point, *predicted).us : *predicted;
    add_suggestions(out, workload, *incumbent_point, archive, now_us, correction.get());
  }
  fit_reply(out);
  return out;
}

}  // namespace amk
