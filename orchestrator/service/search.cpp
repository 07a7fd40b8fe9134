// The keep/revert loops: a strategy proposes, the judge judges, the campaign decides.
#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/base/unexpected.h"
#include "orchestrator/service/begin.h"
#include "orchestrator/service/impl.h"
#include "orchestrator/service/late_strategy.h"
#include "orchestrator/service/phase_clock.h"
#include "orchestrator/service/prior.h"
#include "orchestrator/strategy/strategy.h"

namespace amk {
namespace {

constexpr int kComparedAgain = 3;       // times that a measured candidate follows a best that moves
constexpr std::size_t kRowsShown = 20;  // keeps the reply under 8 KB

struct Run {
  Opened opened;
  CampaignInfo campaign;
  std::string tag;         // names the run: experiments of a resumed run carry it
  std::string strategy;    // its name
  std::int64_t done = 0;   // evaluations of this run, resumed ones included
  std::vector<Json> rows;  // of this call, the last kRowsShown
  std::map<std::string, std::int64_t> counts;
  std::string stopped;  // why the run ended
  // What the prior was learned from; null: cold. The search's maker writes it before the search is there.
  std::shared_ptr<Json> prior = std::make_shared<Json>(nullptr);
  std::unique_ptr<LateStrategy> search;  // last: its maker refers to the rest
};

std::optional<double> cost_of(const Experiment& e) {
  return e.quarantined ? std::nullopt : e.latency_us;  // present only with a correctness PASS
}

Json short_row(const Run& run, const Experiment& e, const std::optional<Experiment>& before) {
  Json row = {{"experiment", to_string(e.id)}, {"schedule_id", e.schedule_id}, {"outcome", e.outcome ? to_string(*e.outcome) : "running"}};
  row["latency_us"] = e.latency_us ? Json(*e.latency_us) : Json(nullptr);
  if (!e.reason.empty()) row["reason"] = e.reason;
  if (before) {
    Json changed = config_difference(run.opened.workload->space(), *run.opened.workload, before->config, e.config);
    if (!changed.empty() && changed.size() <= 4) row["changed"] = std::move(changed);
  }
  return row;
}

// The strategy's next point that can run at all. What lowering, proof or the device's limits refuse is told as a failure at once and costs no
// evaluation; deterministic, so that a resumed run asks the same. After many refusals in a row the last one is returned: its verdict says why.
// `lock` guards the search and is held but for the proofs, which take milliseconds, and the wait for its prior: other lanes ask and tell meanwhile.
// `clock` (may be null): deciding what to try is "search"; the workload names its own phases. Cancelled: `stop` was asked for while the prior was
// awaited. `judged`: a point that ran before, which need not be proved again.
Result<std::optional<Point>> ask_runnable(LateStrategy& search, const Workload& workload, std::unique_lock<std::mutex>& lock, PhaseClock* clock,
                                          const std::stop_token& stop, const Point* judged = nullptr) {
  constexpr int kRefusals = 64;
  Progress phases;
  if (clock != nullptr) phases.enter = [clock](std::string_view phase) { clock->enter(phase); };
  for (int refused = 0;; ++refused) {
    phases.phase("search");
    if (search.must_wait()) {
      lock.unlock();
      const bool there = search.wait(stop);
      lock.lock();
      if (!there) return fail(ErrorKind::Cancelled, "cancelled while the search waited for its prior");
    }
    AMK_TRY(point, search.ask());
    if (!point || (judged != nullptr && *point == *judged)) return point;
    lock.unlock();
    const auto canonical = workload.canonical(workload.config_at(*point));
    const auto us = canonical ? workload.predict_us(*canonical, phases) : Result<double>(0.0);
    lock.lock();
    if (us || us.error().kind != ErrorKind::Rejected || refused == kRefusals) return point;
    search.tell({*point, std::nullopt});
  }
}

// Starts the strategy from what the campaign knows. Experiments of this very run are replayed through ask(), so that a resumed run goes on
// exactly as an uninterrupted one would have; all others are simply told.
Status prime(Service::Impl& impl, Run& run, const SearchRequest& request, bool resumable, const std::stop_token& stop) {
  const Workload& workload = *run.opened.workload;
  StrategyOptions options;
  options.seed = request.seed;
  options.expected_evaluations = static_cast<std::size_t>(request.iters.value_or(request.budget));
  if (request.start_config) {
    AMK_TRY(canonical, workload.canonical(*request.start_config));
    AMK_TRY(point, workload.point_of(canonical));
    options.start.push_back(point);
  }

  std::vector<Experiment> before, mine;
  AMK_CHECK(impl.campaigns.replay(run.campaign.id, 0, [&](const Experiment& e) {
    if (e.outcome == Outcome::Lost) return true;
    (resumable && e.loop == run.tag ? mine : before).push_back(e);
    return true;
  }));
  // The best of what came before this run is where it starts; without any, the default.
  const Experiment* best = nullptr;
  for (const Experiment& e : before)
    if (cost_of(e) && (!best || *cost_of(e) < *cost_of(*best))) best = &e;
  if (best == nullptr) {
    AMK_TRY(canonical, workload.canonical(workload.default_config()));
    if (auto point = workload.point_of(canonical)) options.start.push_back(*point);
  }
  // What other campaigns teach; only the portfolio listens to it. Its report goes into the result.
  const bool listens = !request.cold && run.strategy == kDefaultStrategy;
  auto make = [&impl, opened = run.opened, options, listens, name = run.strategy, campaign = run.campaign.id, report = run.prior,
               seed = request.seed](const std::stop_token& unwanted) mutable -> LateStrategy::Made {
    if (listens) {
      AMK_TRY(learned, workspace_prior(impl, opened, campaign, seed, unwanted));
      options.prior = learned.prior;
      options.otherwise = learned.otherwise;
      options.prior_is_model = learned.report.chosen == "cost-model";
      *report = to_json(learned.report);
    }
    return make_strategy(name, opened.workload->space(), options);
  };
  run.search = std::make_unique<LateStrategy>(workload.space(), options.start, std::move(make));
  for (const Experiment& e : before)
    if (auto point = workload.point_of(e.config)) run.search->tell({*point, cost_of(e)});
  std::mutex alone;
  std::unique_lock lock(alone);
  for (const Experiment& e : mine) {
    if (stop.stop_requested()) return fail(ErrorKind::Cancelled, "cancelled while the run was taken up where it stood");
    // Advances its random numbers as the first time; what it asked is what was evaluated.
    const auto point = workload.point_of(e.config);
    AMK_CHECK(ask_runnable(*run.search, workload, lock, nullptr, stop, point ? &*point : nullptr));
    if (point) run.search->tell({*point, cost_of(e)});
    ++run.done;
    if (e.outcome) ++run.counts[std::string(to_string(*e.outcome))];
  }
  return {};
}

// A candidate that a run is about to judge.
struct Asked {
  Point point;
  Json canonical;
  Ticket ticket;
  CampaignService::Hold held;      // until the verdict is recorded
  std::optional<Experiment> best;  // of the campaign when it was asked, then when it was timed
  PhaseClock clock;
};

// The next candidate. Empty: the run is over (run.stopped says why). `lock` guards the run.
Result<std::optional<Asked>> ask_one(Service::Impl& impl, Run& run, std::unique_lock<std::mutex>& lock, bool ignore_plateau,
                                     const std::stop_token& stop) {
  const Workload& workload = *run.opened.workload;
  const CampaignId id = run.campaign.id;
  PhaseClock clock;
  while (true) {
    auto asked = ask_runnable(*run.search, workload, lock, &clock, stop);
    if (!asked && asked.error().kind == ErrorKind::Cancelled) {
      run.stopped = "cancelled";
      return std::nullopt;
    }
    AMK_TRY(point, std::move(asked));
    if (!point) {
      run.stopped = "space-exhausted";
      return std::nullopt;
    }
    BeginRequest begin;
    AMK_TRY(canonical, workload.canonical(workload.config_at(*point)));
    begin.config = canonical;
    begin.schedule_id = workload.schedule_id(canonical);
    begin.loop = run.tag;
    begin.strategy = run.strategy;
    clock.enter("other");  // the store, comparisons
    const CampaignCalls calls{[&] { return impl.campaigns.begin(id, begin); }, [&] { return impl.campaigns.info(id); },
                              [&] { return impl.campaigns.reopen(id); }};
    auto begun = begin_or_reopen(calls, ignore_plateau);
    if (!begun && begun.error().data.is_object() && begun.error().data.value("reason", "") == "quarantined") {
      run.search->tell({*point, std::nullopt});
      continue;
    }
    if (!begun) return tl::unexpected<Error>(begun.error());
    if (!begun->ticket) {
      run.stopped = begun->done_reason;
      return std::nullopt;
    }
    CampaignService::Hold held = impl.campaigns.hold(*begun->ticket);
    AMK_TRY(best, impl.campaigns.best(id));
    return Asked{*point, std::move(canonical), *begun->ticket, std::move(held), std::move(best), std::move(clock)};
  }
}

// Records what the judge said of `asked`.
Status conclude(Service::Impl& impl, Run& run, Asked& asked, Result<Verdict> verdict, bool ignore_plateau) {
  if (!verdict) {
    // The machinery failed: the candidate is not to blame, the run ends, and the error says what to mend.
    (void)impl.campaigns.lose(asked.ticket, verdict.error().message);
    return tl::unexpected<Error>(verdict.error());
  }
  compare_predicted(*verdict, asked.best);
  AMK_TRY(recorded, impl.campaigns.finish(asked.ticket, std::move(*verdict), asked.clock.take()));
  const Experiment& e = recorded.experiment;
  ++run.done;
  if (e.outcome) ++run.counts[std::string(to_string(*e.outcome))];
  run.search->tell({asked.point, cost_of(e)});
  run.rows.push_back(short_row(run, e, asked.best));
  if (run.rows.size() > kRowsShown) run.rows.erase(run.rows.begin());
  if (recorded.state == CampaignState::Done && !(ignore_plateau && recorded.done_reason == "plateau")) run.stopped = recorded.done_reason;
  return {};
}

// Another evaluation became the best while this one was timed against its predecessor: a candidate that looks as good must be compared with the new
// one. Their ratios to whom they were timed in turn with say so; their times are of two moments, perhaps of two cards.
Result<bool> overtaken(Service::Impl& impl, const Run& run, const Asked& asked, const Result<Verdict>& verdict) {
  if (!verdict || !verdict->latency_us || verdict->latency_kind != LatencyKind::MeasuredGpu) return false;
  AMK_TRY(best, impl.campaigns.best(run.campaign.id));
  if (!best || !best->latency_us || (asked.best && best->schedule_id == asked.best->schedule_id)) return false;
  if (!verdict->versus) return true;                         // compared with nobody yet
  if (verdict->versus->ci_high < kMinSpeedup) return false;  // than which the best is better
  AMK_TRY(leader, impl.campaigns.verdict(best->verdict_id));
  if (!leader.versus || leader.versus->incumbent != verdict->versus->incumbent) return true;
  return verdict->versus->ratio >= leader.versus->ratio;
}

// Evaluates until run.done reaches `limit` or the run is over. As many candidates as the judge has lanes are judged at once (several equal GPUs;
// builds beside the one that has the GPU); asking, recording and telling stay one at a time, and each comparison stays on its GPU.
Status drive(Service::Impl& impl, Run& run, std::int64_t limit, bool ignore_plateau, const Progress& progress, const std::function<void()>& report) {
  std::mutex mutex;
  Status failed;
  std::int64_t begun = run.done;
  const auto lane = [&] {
    std::unique_lock lock(mutex);
    while (failed && run.stopped.empty() && begun < limit) {
      if (progress.stop.stop_requested()) {
        run.stopped = "cancelled";
        return;
      }
      ++begun;  // first: asking lets go of the lock
      auto asked = ask_one(impl, run, lock, ignore_plateau, progress.stop);
      if (!asked && failed) failed = tl::unexpected<Error>(asked.error());
      if (!asked || !*asked) return;
      lock.unlock();
      Progress own = progress;
      own.enter = [&asked](std::string_view phase) { (*asked)->clock.enter(phase); };
      const auto judge = [&] {
        return impl.judge.judge(*run.opened.workload, (*asked)->canonical, run.opened.device, impl.best_of(run.campaign.id, (*asked)->best), own);
      };
      auto verdict = judge();
      lock.lock();
      // Looked at under the lock, under which results are recorded: none of another lane comes between this look and the record.
      for (int again = 0; again < kComparedAgain; ++again) {
        auto late = overtaken(impl, run, **asked, verdict);
        if (!late || !*late) break;
        lock.unlock();
        verdict = judge();
        lock.lock();
      }
      own.phase("other");
      Status concluded = conclude(impl, run, **asked, std::move(verdict), ignore_plateau);
      if (!concluded && failed) failed = std::move(concluded);
      if (progress.report) report();
    }
  };
  const int lanes = run.opened.device == Device::Cuda ? impl.judge.lanes(run.opened.workload->target()) : 1;
  const auto guarded = [&] {
    try {
      lane();
    } catch (const std::exception& e) {  // no memory: nothing may leave a thread, and the lanes end together
      const std::lock_guard lock(mutex);
      if (failed) failed = unexpected_failure("the search", e);
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (int i = 1; i < lanes; ++i) others.emplace_back(guarded);
    } catch (const std::exception&) {  // no thread to be had: fewer at once
    }
    guarded();
  }
  return failed;
}

Result<Run> start(Service::Impl& impl, const SearchRequest& request, const CampaignPolicy& policy, bool resumable) {
  Run run;
  AMK_TRY(opened, impl.workloads.open(request.model, request.gpu, request.device));
  run.opened = std::move(opened);
  run.strategy = request.strategy.empty() ? std::string(kDefaultStrategy) : request.strategy;
  AMK_CHECK(make_strategy(run.strategy, run.opened.workload->space(), {}));  // a wrong name is said before there is a campaign
  run.tag = (resumable ? "autoresearch/" : "loop/") + run.strategy + "/seed" + std::to_string(request.seed) + (request.cold ? "/cold" : "");
  if (request.start_config) {
    AMK_TRY(canonical, run.opened.workload->canonical(*request.start_config));
    AMK_CHECK(run.opened.workload->point_of(canonical));
    run.tag += "/from-" + run.opened.workload->schedule_id(canonical);
  }
  AMK_TRY(campaign, impl.open_campaign(run.opened, policy));
  run.campaign = campaign;
  return run;
}

Result<Json> result_of(Service::Impl& impl, const Run& run) {
  Json out = {{"workload", run.opened.workload->id()},
              {"gpu", run.opened.workload->target().name},
              {"device", run.opened.device_kind()},
              {"campaign", to_string(run.campaign.id)},
              {"evaluations", run.done},
              {"counts", run.counts},
              {"rows", run.rows},
              {"stopped", run.stopped},
              {"prior", nullptr}};
  // A run that ended before the prior was there went without.
  if (run.search->there()) out["prior"] = *run.prior;
  AMK_TRY(best, impl.campaigns.best(run.campaign.id));
  out["best_config"] = best ? best->config : Json(nullptr);
  out["best_verdict"] = nullptr;
  if (best) {
    AMK_TRY(verdict, impl.campaigns.verdict(best->verdict_id));
    out["best_verdict"] = to_json(verdict);
    out["best_verdict"].erase("config");  // best_config says it
    AMK_TRY(speedup, impl.campaigns.speedup(run.campaign.id));
    if (speedup > 0) out["speedup_vs_baseline"] = speedup;
  }
  return out;
}

std::string headline(Service::Impl& impl, const Run& run) {
  const auto best = impl.campaigns.best(run.campaign.id);
  if (!best || !*best || !(*best)->latency_us) return "no correct candidate yet";
  return "best " + with_decimals(*(*best)->latency_us, 1) + " µs";
}

}  // namespace

Result<Json> Service::loop(const SearchRequest& request, const Progress& progress) {
  AMK_TRY(run, start(*impl_, request, {}, false));
  AMK_CHECK(prime(*impl_, run, request, false, progress.stop));
  const auto busy = impl_->campaigns.activity(run.campaign.id);
  const std::int64_t budget = request.budget;
  AMK_CHECK(drive(*impl_, run, budget, true, progress,
                  [&] { progress.report(static_cast<double>(run.done) / static_cast<double>(budget), headline(*impl_, run)); }));
  if (run.stopped.empty()) run.stopped = "budget";
  return result_of(*impl_, run);
}

Result<Json> Service::autoresearch(const SearchRequest& request, const Progress& progress) {
  CampaignPolicy policy;
  if (request.overnight) policy.plateau = 0;
  if (request.minutes) policy.budget_us = std::max<std::int64_t>(1, std::llround(*request.minutes * 60e6));
  AMK_TRY(run, start(*impl_, request, policy, true));
  // The same campaign may have been opened under other rules before: this request's rules hold from now on.
  if (!(run.campaign.policy == policy)) {
    AMK_TRY(info, impl_->campaigns.set_policy(run.campaign.id, policy));
    run.campaign = info;
  }
  if (request.reopen && run.campaign.state == CampaignState::Done) AMK_CHECK(impl_->campaigns.reopen(run.campaign.id, policy));
  AMK_CHECK(prime(*impl_, run, request, true, progress.stop));
  const auto busy = impl_->campaigns.activity(run.campaign.id);
  constexpr std::int64_t kDefaultIters = 64;
  const std::int64_t iters = request.iters.value_or(request.minutes ? std::numeric_limits<std::int64_t>::max() : kDefaultIters);
  AMK_CHECK(drive(*impl_, run, iters, request.overnight, progress, [&] {
    const double fraction = request.iters || !request.minutes ? static_cast<double>(run.done) / static_cast<double>(iters) : -1.0;
    progress.report(fraction, std::to_string(run.done) + " evaluations, " + headline(*impl_, run));
  }));
  if (run.stopped.empty()) run.stopped = "iters";
  AMK_TRY(out, result_of(*impl_, run));
  AMK_TRY(written, report(to_string(run.campaign.id)));
  out["report"] = written["path"];
  return out;
}

}  // namespace amk
