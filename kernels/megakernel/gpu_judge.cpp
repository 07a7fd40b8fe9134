#include "kernels/megakernel/gpu_judge.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <thread>

#include "core/base/json.h"
#include "core/base/stats.h"
#include "core/base/unexpected.h"
#include "core/target/cost_model.h"
#include "kernels/evaluator/gpu_lock.h"
#include "kernels/evaluator/pace.h"
#include "kernels/timed_verdict.h"

namespace amk {
namespace {

constexpr std::size_t kMostRemembered = 10'000;

// Whether a reply about time is of the programs that were asked for.
Status of_these_programs(const Json& reply, const std::string& candidate, const std::string& incumbent) {
  const auto text = [&reply](const char* key) {
    const auto at = reply.find(key);
    return at != reply.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  if (text("schedule_id") == candidate && text("incumbent_id") == incumbent) return {};
  return fail(ErrorKind::Corrupt,
              "the worker's timing cannot be what it measured: it is of " + text("schedule_id") + " against " + text("incumbent_id") + ", not of " +
                  candidate + " against " + incumbent,
              {{"lie", "other-schedule"}});
}

tl::unexpected<Error> malformed(const Json::exception& e) {
  return fail(ErrorKind::Internal, std::string("the GPU worker's reply is malformed: ") + e.what());
}

void say(const Progress& progress, double fraction, const char* what) {
  if (progress.report) progress.report(fraction, what);
}

std::string whole_us(double us) { return std::to_string(std::llround(us)); }

}  // namespace

GpuJudge::GpuJudge(GpuDevice device, DeviceJudgeOptions options, WorkerLink& link, std::shared_ptr<GpuReferences> references)
    : device_(std::move(device)), options_(std::move(options)), link_(link), references_(std::move(references)) {}

Result<Message> GpuJudge::call(Json request, std::chrono::milliseconds limit, const Progress& progress) {
  request["family"] = "megakernel";
  return link_.call(request, limit, [&progress] { return progress.stop.stop_requested(); });
}

// Under mutex_.
double GpuJudge::known_us(const Workload& workload, const std::string& schedule_id) const {
  const auto at = measured_us_.find({workload.id(), schedule_id});
  return at == measured_us_.end() ? 0.0 : at->second;
}

void GpuJudge::remember_us(const Workload& workload, const std::string& schedule_id, double us) {
  if (measured_us_.size() >= kMostRemembered) measured_us_.clear();
  measured_us_[{workload.id(), schedule_id}] = us;
}

Status GpuJudge::open_model(const MegakernelWorkload& workload, const Progress& progress) {
  const auto opened = call({{"op", "open"},
                            {"model", workload.id()},
                            {"content", workload.content()},  // a worker keeps a model while the request stays the same
                            {"gpu_ordinal", device_.ordinal},
                            {"config_dir", options_.config_dir.string()},
                            {"max_seq", workload.lowering_target().max_seq},
                            {"cache", options_.cache_folder.string()}},
                           options_.open_limit, progress);
  if (!opened)
    return tl::unexpected<Error>(without_candidate(link_, device_.ordinal, opened.error(), [&progress] { return progress.stop.stop_requested(); }));
  if (opened->body.value("uuid", "") != device_.uuid)
    return fail(ErrorKind::Unavailable, "the worker opened another GPU than " + device_.uuid, broken_gpu(device_.ordinal));
  return {};
}

std::vector<std::jthread> GpuJudge::begin_ahead(const MegakernelWorkload& whole, const InstructionWorkload* alone, const Progress& progress) {
  std::vector<std::jthread> out;
  {
    // Once a workload: two campaigns that take turns would load each other's model away.
    const std::lock_guard lock(begun_mutex_);
    if (!begun_.insert(alone != nullptr ? alone->id() : whole.id()).second) return out;
  }
  Progress quiet;
  quiet.stop = progress.stop;
  try {
    // What fails here fails again where it is needed, and is told there.
    const auto quietly = [](auto work) {
      return [work = std::move(work)] {
        try {
          work();
        } catch (const std::exception&) {  // no memory: nothing may leave a thread
        }
      };
    };
    out.emplace_back(quietly([this, &whole, alone, quiet] {
      if (alone != nullptr)
        (void)reference_of(*references_, *alone, quiet);
      else
        (void)references_of(*references_, whole, quiet);
    }));
    out.emplace_back(quietly([this, &whole, quiet] {
      const std::lock_guard one(mutex_);
      const auto lock = GpuLock::acquire(
          device_.uuid, options_.lock_limit, [&quiet] { return quiet.stop.stop_requested(); }, options_.lock_folder);
      if (lock) (void)open_model(whole, quiet);
    }));
  } catch (const std::exception&) {  // no thread to be had: then nothing is begun ahead
  }
  return out;
}

Result<BuiltCandidate> GpuJudge::plan(const MegakernelWorkload& workload, const Json& canonical, const PlanOptions& options,
                                      const Progress& progress) const {
  AMK_TRY(config, workload.parse(canonical));
  PlanOptions own = options;
  own.batch = workload.batch();
  const ModelSpec& spec = workload.model().spec;
  const GpuTarget& target = workload.target();
  const bool same = target.sm_count == device_.sm_count && target.smem_optin_bytes == device_.smem_optin_bytes;
  if (same && own.instruction.empty()) {
    AMK_TRY(program, workload.proved_program(config, progress));
    progress.phase("build");
    return plan_proved(std::move(program), config, limits_of(device_), own);
  }
  return plan_candidate(spec, config, limits_of(device_), workload.lowering_target().max_seq, own);
}

Status GpuJudge::compile(BuiltCandidate& candidate) const {
  AMK_TRY(compiler, NvrtcCompiler::open());
  AMK_TRY(cache, BuildCache::open(options_.cache_folder));
  return compile_candidate(candidate, compiler, cache);
}

Result<BuiltCandidate> GpuJudge::build(const MegakernelWorkload& workload, const Json& canonical, const PlanOptions& options,
                                       const Progress& progress) const {
  AMK_TRY(out, plan(workload, canonical, options, progress));
  AMK_CHECK(compile(out));
  return out;
}

// The worker failed during a candidate's turn.
Status GpuJudge::blame(Turn& turn, const Error& error, const Progress& progress) {
  Verdict& verdict = turn.verdict;
  if (!turn.last && worth_another_turn(error)) return tl::unexpected<Error>(error);
  if (error.kind == ErrorKind::Rejected) {
    reject(verdict, error, "device");
    return {};
  }
  AMK_TRY(failure, blame_candidate(link_, device_.ordinal, error, [&progress] { return progress.stop.stop_requested(); }));
  verdict.status = failure.timed_out ? VerdictStatus::Timeout : VerdictStatus::Crash;
  verdict.correct = false;
  append_note(verdict, failure.note);
  return {};
}

Result<bool> GpuJudge::prepare(Turn& turn, const Progress& progress) {
  progress.phase("build");  // the plan included, and of an instruction alone its proof
  PlanOptions options;
  if (turn.alone != nullptr) options.instruction = turn.alone->op();
  auto built = plan(turn.whole, turn.verdict.config, options, progress);
  std::vector<std::jthread> ahead;
  std::optional<Result<GpuQuestion>> asked;
  std::optional<std::jthread> asking;
  if (built) {
    ahead = begin_ahead(turn.whole, turn.alone, progress);
    // What is right for this judgement is found while the kernel is built and other candidates have the GPU.
    Progress quiet;
    quiet.stop = progress.stop;
    const auto ask = [&, quiet] {
      try {
        asked = turn.alone != nullptr ? gpu_question(*references_, *turn.alone, device_.l2_bytes, quiet)
                                      : gpu_question(*references_, turn.whole, turn.steps, device_.l2_bytes, quiet);
      } catch (const std::exception& e) {  // no memory: nothing may leave a thread
        asked = unexpected_failure("the question to the GPU", e);
      }
    };
    try {
      asking.emplace(ask);
    } catch (const std::exception&) {  // no thread to be had
      ask();
    }
    if (const Status compiled = compile(*built); !compiled) built = tl::unexpected<Error>(compiled.error());
  }
  if (!built) {
    if (built.error().kind != ErrorKind::Rejected) return tl::unexpected<Error>(std::move(built).error());
    reject(turn.verdict, built.error(), "device");
    return false;
  }
  turn.verdict.valid = true;
  turn.verdict.tasks = static_cast<std::int64_t>(built->program->tasks.size());
  turn.verdict.weight_bytes = turn.alone != nullptr ? turn.alone->weight_bytes() : turn.whole.model().spec.decode_weight_bytes();
  turn.verdict.smem_bytes = built->plan.shared_bytes;
  turn.verdict.build_ms = built->build_ms;
  if (turn.alone == nullptr) {
    AMK_TRY(config, turn.whole.parse(turn.verdict.config));
    turn.predicted = predict(*built->program, config, turn.whole.target(), kPredictPosition);
  }

  progress.phase("check");
  if (!ahead.empty()) say(progress, 0.1, "running the oracle, loading the model on the GPU");
  ahead.clear();  // joins
  if (asking) asking->join();
  if (!*asked) return tl::unexpected<Error>(std::move(*asked).error());
  turn.asks = std::move(**asked);
  return true;
}

Result<std::optional<Message>> GpuJudge::run_check(Turn& turn, double patience_us, const Progress& progress) {
  const Verdict& verdict = turn.verdict;
  Json request = turn.asks.check;
  request["op"] = "check";
  request["config"] = verdict.config;
  if (patience_us > 0) request["patience_us"] = patience_us;
  if (options_.next_fault) request["fault"] = options_.next_fault();
  auto checked = call(std::move(request), options_.check_limit, progress);
  if (!checked) {
    AMK_CHECK(blame(turn, checked.error(), progress));
    return std::optional<Message>();
  }
  if (const std::string id = checked->body.value("schedule_id", ""); id != verdict.schedule_id) {
    link_.restart();
    return fail(ErrorKind::Corrupt, "the GPU worker answered for schedule " + id + " when asked for " + verdict.schedule_id,
                {{"lie", "other-schedule"}});
  }
  return std::optional<Message>(std::move(*checked));
}

Result<bool> GpuJudge::worth_a_check(Turn& turn, const Json& incumbent, const Progress& progress) {
  Verdict& verdict = turn.verdict;
  const auto asked_at = std::chrono::steady_clock::now();
  const auto reply = call({{"op", "pace"}, {"config", verdict.config}, {"incumbent", incumbent}}, options_.time_limit, progress);
  if (!reply) {
    AMK_CHECK(blame(turn, reply.error(), progress));
    return false;
  }
  const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - asked_at);
  const Status these = of_these_programs(reply->body, verdict.schedule_id, turn.workload.schedule_id(incumbent));
  auto pace = these ? judged_pace(reply->body, waited) : Result<Pace>(tl::unexpected<Error>(these.error()));
  if (!pace) {
    link_.restart();
    return tl::unexpected<Error>(std::move(pace).error());
  }
  if (!hopeless(*pace)) return true;
  verdict.status = VerdictStatus::Timeout;
  verdict.correct = false;
  append_note(verdict, "Given up before its outputs were checked: a step takes " + whole_us(median(pace->candidate_us)) + " us, the incumbent's " +
                           whole_us(median(pace->incumbent_us)) + " us in the same moment.");
  return false;
}

Result<bool> GpuJudge::check(Turn& turn, const IncumbentNow& against, const Progress& progress) {
  Verdict& verdict = turn.verdict;
  std::optional<Json> incumbent;  // other than the candidate itself
  if (turn.alone == nullptr) {
    AMK_TRY(best, against());
    if (best && turn.workload.schedule_id(*best) != verdict.schedule_id) incumbent = std::move(best);
  }
  const double best_us = incumbent ? known_us(turn.workload, turn.workload.schedule_id(*incumbent)) : 0.0;
  const double patience_us = incumbent ? std::max(kHopeless * best_us, best_us + kClearlySlower_us) : 0.0;
  AMK_TRY(checked, run_check(turn, patience_us, progress));
  if (checked && patience_us > 0 && checked->body.value("gave_up_us", 0.0) > patience_us) {
    AMK_TRY(worth, worth_a_check(turn, *incumbent, progress));
    if (!worth) return false;
    AMK_TRY(whole, run_check(turn, 0, progress));
    checked = std::move(whole);
  }
  if (!checked) return false;
  const Json& said = checked->body;
  std::vector<float> outputs(checked->payload.size() / sizeof(float));
  std::memcpy(outputs.data(), checked->payload.data(), outputs.size() * sizeof(float));
  AMK_TRY(answer, turn.asks.compare(outputs, said));
  verdict.registers = said.at("program").value("registers", std::int64_t{0});
  verdict.correctness = answer.correctness;
  std::string failure = answer.failure;
  const auto also = [&](bool bad, const std::string& why) {
    if (bad && failure.empty()) failure = why;
  };
  also(said.value("unwritten", std::int64_t{1}) != 0, "outputs were not written");
  also(said.value("not_finite", std::int64_t{1}) != 0, "an output is not a number, also where it is not compared");
  also(said.value("damaged_guards", std::int64_t{1}) != 0, "bytes outside the buffers were written");
  also(!said.value("inputs_unchanged", false), "weights or tokens were changed");
  also(turn.steps > 1 && (said.value("fed_back", 0) == 0 || !said.value("fed_back_equal", false)),
       "tokens fed back on the device give other bits than the same as a text, or are not the argmax");
  if (!failure.empty()) {
    verdict.status = VerdictStatus::Incorrect;
    append_note(verdict, "Incorrect: " + failure + ".");
    return false;
  }
  turn.checked_hash = said.value("last_hash", std::uint64_t{1});
  return true;
}

Result<bool> GpuJudge::time(Turn& turn, const IncumbentNow& against, const Progress& progress) {
  Verdict& verdict = turn.verdict;
  GpuQuestion& asks = turn.asks;
  AMK_TRY(incumbent, against());
  const bool same = incumbent && turn.workload.schedule_id(*incumbent) == verdict.schedule_id;
  if (incumbent && turn.alone == nullptr) {  // whole launches of both
    if (const auto other = turn.whole.parse(*incumbent); other && other->kernel.tokens_per_launch > asks.tokens)
      time_last(asks, turn.whole, asks.first + asks.tokens, other->kernel.tokens_per_launch);
  }
  const auto asked_at = std::chrono::steady_clock::now();
  Json request = {{"op", "time"},
                  {"config", verdict.config},
                  {"incumbent", incumbent && !same ? *incumbent : Json(nullptr)},
                  {"first", asks.first},
                  {"tokens_per_sample", asks.tokens},
                  {"flush", asks.flush},
                  {"most_ms", options_.timing_ms}};
  if (turn.alone != nullptr) request["instruction"] = turn.alone->op();
  const auto timed = call(std::move(request), options_.time_limit + std::chrono::milliseconds(options_.timing_ms), progress);
  if (!timed) {
    if (!timed.error().data.contains("withheld")) {
      AMK_CHECK(blame(turn, timed.error(), progress));
      return false;
    }
    verdict.status = VerdictStatus::Ok;
    verdict.correct = true;
    withhold(verdict, timed.error().data.value("withheld", ""), timed.error().message + ".");
    return false;
  }
  // Again after timing: the last timed step must have left the bits that the checked one left.
  if (timed->body.value("last_hash", std::uint64_t{0}) != turn.checked_hash) {
    verdict.status = VerdictStatus::Incorrect;
    append_note(verdict, "Incorrect: the outputs after timing differ from those that were checked.");
    return false;
  }
  verdict.status = VerdictStatus::Ok;
  verdict.correct = true;
  const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - asked_at);
  const std::string incumbent_id = incumbent && !same ? turn.workload.schedule_id(*incumbent) : std::string();
  bool believed = true;
  if (const Status these = of_these_programs(timed->body, verdict.schedule_id, incumbent_id); !these) {
    withhold(verdict, kImplausibleTiming, these.error().message + ": withheld.");
    believed = false;
  } else {
    believed = judge_timed_reply(verdict, timed->body, {!incumbent_id.empty(), 2, static_cast<double>(asks.tokens), waited},
                                 {asks.floor.bound_us, static_cast<std::int64_t>(asks.floor.hbm_bytes)}, incumbent_id);
  }
  if (believed && verdict.latency_us) {
    remember_us(turn.workload, verdict.schedule_id, *verdict.latency_us);
    if (verdict.versus) remember_us(turn.workload, incumbent_id, *verdict.latency_us * verdict.versus->ratio);
  }
  if (!believed) link_.restart();  // the machine's doing, not the candidate's; and a worker that is caught once is not asked again
  return true;
}

Result<bool> GpuJudge::on_gpu(Turn& turn, const IncumbentNow& against, const Progress& progress) {
  progress.phase("check");
  say(progress, 0.2, "loading the model on the GPU");
  AMK_CHECK(open_model(turn.whole, progress));
  say(progress, 0.3, "checking");
  AMK_TRY(right, check(turn, against, progress));
  if (!right) return false;
  say(progress, 0.6, "timing");
  progress.phase("timing");
  return time(turn, against, progress);
}

Result<Verdict> GpuJudge::judge_against(const Workload& workload, const Json& canonical, const IncumbentNow& against, const Progress& progress) try {
  const auto* alone = dynamic_cast<const InstructionWorkload*>(&workload);
  const auto* whole = alone != nullptr ? &alone->model() : dynamic_cast<const MegakernelWorkload*>(&workload);
  if (whole == nullptr) return fail(ErrorKind::Internal, workload.id() + " is not a megakernel workload");
  AMK_TRY(config, alone != nullptr ? alone->parse(canonical) : whole->parse(canonical));
  Turn turn{workload, *whole, alone, config.kernel.tokens_per_launch, verdict_of(workload, to_json(config)), {}};
  turn.verdict.device = device_.uuid;

  say(progress, 0.0, "building");
  AMK_TRY(prepared, prepare(turn, progress));
  if (!prepared) return std::move(turn.verdict);

  progress.phase("waiting");
  const std::lock_guard one(mutex_);
  AMK_TRY(lock, GpuLock::acquire(
                    device_.uuid, options_.lock_limit, [&progress] { return progress.stop.stop_requested(); }, options_.lock_folder));
  AMK_TRY(timed, in_turns(link_, [&](bool last) {
            turn.last = last;
            return on_gpu(turn, against, progress);
          }));
  if (!timed) return std::move(turn.verdict);

  if (turn.predicted && turn.verdict.latency_us) fill_regions(turn.verdict, *turn.predicted);
  if (alone != nullptr) append_note(turn.verdict, "Instruction " + alone->op() + " alone, in every layer, per token.");
  if (turn.steps > 1)
    append_note(turn.verdict, std::to_string(turn.steps) + " tokens a launch, fed back on the device: they reach the host together.");
  append_note(turn.verdict, !turn.asks.flush ? "Cold by size: the weights exceed L2."
                            : turn.steps == 1
                                ? "Cold: L2 flushed before every sample."
                                : "Cold: L2 flushed before every launch of " + std::to_string(turn.steps) + " tokens; the later ones find it warm.");
  say(progress, 1.0, "judged");
  return std::move(turn.verdict);
} catch (const Json::exception& e) {
  return malformed(e);
}

Result<GpuDecode> GpuJudge::decode(const MegakernelWorkload& workload, const Json& canonical, const std::vector<int>& prompt, int count, bool logits,
                                   const Progress& progress) {
  AMK_TRY(all, decode(workload, canonical, std::vector<std::vector<int>>{prompt}, count, logits, progress));
  return std::move(all.front());
}

Result<std::vector<GpuDecode>> GpuJudge::decode(const MegakernelWorkload& workload, const Json& canonical,
                                                const std::vector<std::vector<int>>& prompts, int count, bool logits, const Progress& progress) try {
  if (prompts.size() != static_cast<std::size_t>(workload.batch()))
    return bad_field("prompts", prompts.size(), "one for each of " + std::to_string(workload.batch()) + " sequences");
  AMK_TRY(config, workload.parse(canonical));
  AMK_TRY(built, build(workload, canonical, {}, progress));  // errors of the schedule before the GPU is taken
  (void)built;
  const std::lock_guard one(mutex_);
  AMK_TRY(lock, GpuLock::acquire(
                    device_.uuid, options_.lock_limit, [&progress] { return progress.stop.stop_requested(); }, options_.lock_folder));
  AMK_CHECK(open_model(workload, progress));
  std::size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  const auto limit = options_.check_limit + std::chrono::milliseconds(20 * (static_cast<std::int64_t>(longest) + count));
  AMK_TRY(reply, call({{"op", "decode"}, {"config", to_json(config)}, {"prompts", prompts}, {"count", count}, {"logits", logits}}, limit, progress));
  std::vector<GpuDecode> out;
  std::size_t at = 0;
  for (std::size_t s = 0; s < prompts.size(); ++s) {
    GpuDecode& d = out.emplace_back();
    d.ids = reply.body.at("generated_ids").at(s).get<std::vector<int>>();
    d.tokens_processed = reply.body.at("tokens_processed").at(s).get<int>();
    if (!logits) continue;
    d.logits.resize(static_cast<std::size_t>(d.tokens_processed) * static_cast<std::size_t>(workload.model().spec.vocab));
    const std::size_t bytes = d.logits.size() * sizeof(float);
    if (at + bytes > reply.payload.size()) return fail(ErrorKind::Internal, "the GPU worker returned fewer logits than tokens");
    std::memcpy(d.logits.data(), reply.payload.data() + at, bytes);
    at += bytes;
  }
  return out;
} catch (const Json::exception& e) {
  return malformed(e);
}

Result<GpuJudge::Traced> GpuJudge::trace(const MegakernelWorkload& workload, const Json& canonical, int position, const Progress& progress) try {
  const int max_seq = workload.lowering_target().max_seq;
  if (position < 0 || position >= max_seq) return bad_field("position", position, "0 to " + std::to_string(max_seq - 1));
  AMK_TRY(config, workload.parse(canonical));
  PlanOptions options;
  options.trace = true;
  Traced out;
  AMK_TRY(built, build(workload, canonical, options, progress));
  out.built = std::move(built);
  const std::lock_guard one(mutex_);
  AMK_TRY(lock, GpuLock::acquire(
                    device_.uuid, options_.lock_limit, [&progress] { return progress.stop.stop_requested(); }, options_.lock_folder));
  AMK_CHECK(open_model(workload, progress));
  AMK_TRY(reply, call({{"op", "trace"}, {"config", to_json(config)}, {"position", position}}, options_.check_limit, progress));
  out.marks.resize(reply.payload.size() / sizeof(std::uint64_t));
  std::memcpy(out.marks.data(), reply.payload.data(), out.marks.size() * sizeof(std::uint64_t));
  return out;
} catch (const Json::exception& e) {
  return malformed(e);
}

}  // namespace amk
