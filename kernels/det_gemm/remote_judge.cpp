#include "kernels/det_gemm/remote_judge.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/base/resources.h"
#include "kernels/det_gemm/cost_model.h"
#include "kernels/det_gemm/runner.h"
#include "kernels/det_gemm/workload.h"
#include "kernels/evaluator/gpu_lock.h"
#include "kernels/timed_verdict.h"

namespace amk::det_gemm {
namespace {

Verdict refused(const GemmWorkload& workload, const GpuDevice& device, const Json& canonical, const Error& error) {
  Verdict verdict = verdict_of(workload, canonical);
  verdict.device = device.uuid;
  reject(verdict, error, "build");
  return verdict;
}

// The worker's word is taken for what only it can see: whether the bits were right, registers, build time. What was asked is the judge's own to know,
// and every number about time is computed again from the samples.
Result<Verdict> read_verdict(const Json& reply, const GemmWorkload& workload, const Json& canonical, const std::optional<Json>& incumbent,
                             double waited_us) {
  const auto said = reply.find("verdict");
  if (said == reply.end()) return fail(ErrorKind::Corrupt, "the GPU worker's reply has no verdict", {{"lie", "malformed"}});
  auto verdict = verdict_from_json(*said);
  if (!verdict) return fail(ErrorKind::Corrupt, "the GPU worker's verdict is malformed: " + verdict.error().message, {{"lie", "malformed"}});
  const std::string id = workload.schedule_id(canonical);
  if (verdict->schedule_id != id || verdict->config != canonical || verdict->workload != workload.id() || verdict->gpu != workload.target().name ||
      verdict->regime != workload.regime())
    return fail(ErrorKind::Corrupt,
                "the GPU worker answered for " + verdict->workload + " " + verdict->schedule_id + " when asked for " + workload.id() + " " + id,
                {{"lie", "other-schedule"}});
  const bool correct = verdict->status == VerdictStatus::Ok;
  if (correct != verdict->correct || (correct && !verdict->valid))
    return fail(ErrorKind::Corrupt, "the GPU worker's verdict is ok and incorrect at once", {{"lie", "malformed"}});
  if (!correct) {
    verdict->latency_us.reset();
    verdict->latency_kind = LatencyKind::None;
    verdict->versus.reset();
    return verdict;
  }
  if (verdict->withheld == "no-valid-samples" && reply.find("timing") == reply.end()) {
    withhold(*verdict, verdict->withheld, "");  // no number to doubt
    return verdict;
  }
  const TimingAsked asked{incumbent.has_value(), 2, 1, std::chrono::microseconds(static_cast<std::int64_t>(waited_us))};
  (void)judge_timed_reply(*verdict, reply, asked, timed_floor(workload), incumbent ? workload.schedule_id(*incumbent) : std::string());
  return verdict;
}

}  // namespace

Result<Message> RemoteJudge::call(Json request, std::chrono::milliseconds limit, const Progress& progress) {
  request["family"] = "det_gemm";
  return link_.call(request, limit, [&progress] { return progress.stop.stop_requested(); });
}

Result<Verdict> RemoteJudge::judge_against(const Workload& any, const Json& canonical, const IncumbentNow& against, const Progress& progress) {
  const auto* workload = dynamic_cast<const GemmWorkload*>(&any);
  if (workload == nullptr) return fail(ErrorKind::Internal, any.id() + " is not a det_gemm workload");
  const auto say = [&](double fraction, const char* what) {
    if (progress.report) progress.report(fraction, what);
  };
  say(0.0, "building");
  progress.phase("build");
  AMK_TRY(resources, find_resources());
  auto plan = workload->plan(canonical);
  if (!plan && plan.error().kind == ErrorKind::Rejected) return refused(*workload, device_, canonical, plan.error());
  if (!plan) return tl::unexpected<Error>(std::move(plan).error());
  const Status built = Runner::prebuild({&*plan, 1}, resources, options_.cache_folder, 1);
  if (!built && built.error().kind == ErrorKind::Rejected) return refused(*workload, device_, canonical, built.error());
  AMK_CHECK(built);

  progress.phase("waiting");
  const std::lock_guard one(mutex_);
  const auto stop = [&progress] { return progress.stop.stop_requested(); };
  AMK_TRY(lock, GpuLock::acquire(device_.uuid, options_.lock_limit, stop, options_.lock_folder));
  std::optional<Json> incumbent;  // other than the candidate itself
  std::chrono::steady_clock::time_point asked_at;
  Verdict failed = verdict_of(*workload, canonical);  // of a candidate that harms its worker
  failed.device = device_.uuid;
  failed.valid = true;
  // Empty: it did.
  const auto turn = [&](bool last) -> Result<std::optional<Message>> {
    progress.phase("check");
    say(0.2, "drawing operands, checking the plain kernel against the oracle");
    Json open = {{"op", "open"}, {"workload", workload->id()}, {"gpu_ordinal", device_.ordinal}, {"cache", options_.cache_folder.string()}};
    const auto opened = call(std::move(open), options_.open_limit, progress);
    if (!opened) return tl::unexpected<Error>(without_candidate(link_, device_.ordinal, opened.error(), stop));
    say(0.5, "checking and timing");
    AMK_TRY(best, against());
    incumbent = best && workload->schedule_id(*best) != workload->schedule_id(canonical) ? best : std::nullopt;
    Json check = {{"op", "check"}, {"config", canonical}, {"incumbent", incumbent ? *incumbent : Json(nullptr)}};
    if (options_.next_fault) check["fault"] = options_.next_fault();
    asked_at = std::chrono::steady_clock::now();
    auto checked = call(std::move(check), options_.check_limit, progress);
    if (checked) return std::move(*checked);
    if (!last && worth_another_turn(checked.error())) return tl::unexpected<Error>(checked.error());
    AMK_TRY(failure, blame_candidate(link_, device_.ordinal, checked.error(), stop));
    failed.status = failure.timed_out ? VerdictStatus::Timeout : VerdictStatus::Crash;
    failed.notes = failure.note;
    return std::optional<Message>();
  };
  AMK_TRY(checked, in_turns(link_, turn));
  if (!checked) return failed;
  const std::chrono::duration<double, std::micro> waited = std::chrono::steady_clock::now() - asked_at;
  auto verdict = read_verdict(checked->body, *workload, canonical, incumbent, waited.count());
  if (!verdict) {
    link_.restart();
    return verdict;
  }
  if (verdict->withheld == kImplausibleTiming) link_.restart();
  verdict->device = device_.uuid;
  if (verdict->latency_us) verdict->regions = regions_of(estimate(*plan, workload->target()), *verdict->latency_us);
  say(1.0, "judged");
  return verdict;
}

}  // namespace amk::det_gemm
