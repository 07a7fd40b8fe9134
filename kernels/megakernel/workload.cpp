#include "kernels/megakernel/workload.h"

#include <algorithm>
#include <random>

#include "core/base/json.h"
#include "core/base/resources.h"
#include "core/program/packing.h"
#include "core/program/program_json.h"
#include "core/program/validator.h"
#include "core/reference/reference_vm.h"
#include "core/target/cost_model.h"
#include "kernels/megakernel/cpu_check.h"
#include "kernels/megakernel/gpu_layout.h"
#include "kernels/megakernel/gpu_model.h"
#include "kernels/megakernel/tuned_configs.h"

namespace amk {
namespace {

std::string what_was_executed(const Executed& executed, const ScheduleConfig& config) {
  if (!executed.stand_in) return "Checked on the CPU: the lowered program on the reference VM against the oracle, in fp32.";
  const ModelSpec& spec = executed.model.spec;
  std::string notes =
      "Checked on the CPU without this model's weights: its program was proved and dry-run (queues, counters, ring, regions); "
      "arithmetic was executed on a stand-in of the same architecture (" +
      std::to_string(spec.layers) + " layers, hidden " + std::to_string(spec.hidden) + ", " + std::to_string(executed.target.sm_count) +
      " SMs, seeded weights) under the same config.";
  if (config.sm_assignment == SmAssignment::Explicit)
    notes += " The stand-in was placed round robin: an explicit map names tiles that it does not have.";
  return notes;
}

}  // namespace

void fill_prediction(Verdict& verdict, const Prediction& p) {
  verdict.latency_us = p.latency_us;
  verdict.latency_kind = LatencyKind::Predicted;
  verdict.bound_us = p.bound_us;
  verdict.pct_of_roofline = 100.0 * p.bound_us / p.latency_us;
  verdict.read_bandwidth_gbs = static_cast<double>(p.hbm_bytes) / p.latency_us * 1e-3;
  fill_regions(verdict, p);
}

void fill_regions(Verdict& verdict, const Prediction& p) {
  const double scale = *verdict.latency_us / p.latency_us;
  verdict.regions = {{"attention", p.regions.attention * scale},
                     {"mlp", p.regions.mlp * scale},
                     {"lm_head", p.regions.lm_head * scale},
                     {"sync", p.regions.sync * scale},
                     {"other", p.regions.other * scale}};
}

MegakernelWorkload::MegakernelWorkload(ModelRef ref, GpuTarget target)
    : ref_(std::move(ref)),
      stamp_(stamp_of(ref_)),
      target_(std::move(target)),
      regime_(std::string(to_string(ref_.spec.matrix_dtype())) + "-b" + std::to_string(ref_.batch)),
      space_(megakernel_space(ref_.spec, target_, ref_.batch)),
      defaults_(amk::config_at(space_, space_.default_point())),
      executed_(executed_on_cpu(ref_, lowering_target())),
      token_seed_((std::uint64_t{std::random_device{}()} << 32) | std::random_device{}()) {}

Result<std::shared_ptr<const MegakernelWorkload>> MegakernelWorkload::create(const ModelRef& ref, const GpuTarget& target) {
  AMK_CHECK(check_packable(ref.spec));
  if (ref.spec.weight_format == WeightFormat::Int8 && ref.spec.dtype == DType::F32)
    return fail(ErrorKind::Unsupported, ref.spec.name + ": int8 weights need a bf16 or fp16 model; this one is fp32",
                {{"field", "model"}, {"value", ref.spec.name}, {"accepted", "a bf16 or fp16 model, or this one without @int8"}});
  std::shared_ptr<MegakernelWorkload> workload(new MegakernelWorkload(ref, target));
  AMK_CHECK(workload->fit_defaults());
  return workload;
}

// The space's default is a guess. Where this model does not fit this GPU so, the largest ring that does, in smaller chunks if need be, is the
// default.
Status MegakernelWorkload::fit_defaults() {
  const auto fits = [&](const ScheduleConfig& config) -> Result<bool> {
    AMK_TRY(program, lower(ref_.spec, config, lowering_target(), gpu_format(ref_.spec.dtype)));
    const Status fit = check_device_fit(program, config, limits_of(target_));
    if (fit) return true;
    const std::string rule = fit.error().data.value("rule", "");
    if (rule == "shared-memory" || rule == "ring-turn") return false;
    return tl::unexpected<Error>(fit.error());
  };
  AMK_TRY(as_guessed, fits(defaults_));
  if (as_guessed) return {};
  Point point = space_.default_point();
  const auto knob = [&](std::string_view name) { return space_.index_of(name); };
  const std::size_t ring = knob("smem_bytes_per_block"), chunk = knob("kernel_knobs.chunk_bytes"), columns = knob("kernel_knobs.cols_per_warp");
  const auto choices_down = [&](std::size_t at) { return at < space_.knobs.size() ? point[at] + 1 : 1; };
  const Point first = point;
  for (int r = 0; r < choices_down(ring); ++r) {
    for (int c = 0; c < choices_down(chunk); ++c) {
      for (int w = 0; w < choices_down(columns); ++w) {
        Point moved = first;
        if (ring < moved.size()) moved[ring] = static_cast<std::uint16_t>(first[ring] - r);
        if (chunk < moved.size()) moved[chunk] = static_cast<std::uint16_t>(first[chunk] - c);
        if (columns < moved.size()) moved[columns] = static_cast<std::uint16_t>(first[columns] - w);
        const ScheduleConfig config = amk::config_at(space_, moved);
        if (space_.violated(moved) != nullptr) continue;
        AMK_TRY(good, fits(config));
        if (!good) continue;
        defaults_ = config;
        for (const std::size_t k : {ring, chunk, columns})
          if (k < moved.size()) space_.knobs[k].default_index = moved[k];
        return {};
      }
    }
  }
  return fail(ErrorKind::Unsupported, ref_.spec.name + " does not fit the shared memory of " + target_.name + " (" +
                                          std::to_string(target_.smem_optin_bytes) + " bytes a block) with any ring");
}

LoweringTarget MegakernelWorkload::lowering_target() const {
  LoweringTarget out;
  out.sm_count = target_.sm_count;
  out.smem_optin_bytes = target_.smem_optin_bytes;
  out.max_seq = std::min(ref_.spec.max_position, kDefaultMaxSeq);
  out.batch = ref_.batch;
  return out;
}

Status MegakernelWorkload::unchanged() const {
  if (ref_.source == ModelRef::Source::Catalogue) return {};
  // By its name: that of a hub may lead to another snapshot by now.
  const auto changed = [&](const std::string& why) {
    return fail(ErrorKind::Unavailable,
                "the checkpoint of " + id() + " changed while it was in use (" + why +
                    "): what was judged is neither the old model nor the new one; ask again",
                {{"reason", "checkpoint-changed"}, {"model", id()}});
  };
  AMK_TRY(resources, find_resources());
  const auto now = resolve_model(id(), ModelSources::from_environment(resources.config()));
  if (!now) return changed(now.error().message);
  if (stamp_of(*now) != stamp_) return changed("files in " + now->directory.string() + " were written or replaced");
  return {};
}

Json MegakernelWorkload::features() const {
  const ModelSpec& s = ref_.spec;
  return {{"hidden", s.hidden},
          {"intermediate", s.intermediate},
          {"layers", s.layers},
          {"heads", s.heads},
          {"kv_heads", s.kv_heads},
          {"head_dim", s.head_dim},
          {"vocab", s.vocab},
          {"batch", ref_.batch},
          {"weight_bytes", s.decode_weight_bytes()},
          {"sm_count", target_.sm_count},
          {"l2_bytes", target_.l2_bytes},
          {"bandwidth_gbs", target_.peak_bandwidth_gbs},
          {"smem_bytes", target_.smem_optin_bytes}};
}

Result<ScheduleConfig> MegakernelWorkload::parse(const Json& config) const { return parse_schedule_config(config, defaults_); }

Result<Json> MegakernelWorkload::canonical(const Json& config) const {
  AMK_TRY(parsed, parse(config));
  return to_json(parsed);
}

Json MegakernelWorkload::default_config() const { return to_json(defaults_); }

Result<Point> MegakernelWorkload::point_of(const Json& canonical) const {
  AMK_TRY(parsed, parse(canonical));
  return amk::point_of(space_, parsed);
}

Json MegakernelWorkload::config_at(const Point& point) const { return to_json(amk::config_at(space_, point)); }

std::string MegakernelWorkload::schedule_id(const Json& canonical) const {
  const auto parsed = parse(canonical);
  return parsed ? amk::schedule_id(*parsed) : std::string();
}

Result<std::shared_ptr<const Program>> MegakernelWorkload::proved_program(const ScheduleConfig& config, const Progress& progress) const {
  constexpr std::size_t kKept = 8;  // of a search's lanes, each of which proves what it asks before it is judged; megabytes, of a large model
  const std::string id = amk::schedule_id(config);
  {
    const std::lock_guard lock(proved_mutex_);
    for (auto it = proved_.begin(); it != proved_.end(); ++it) {
      if (it->schedule_id != id) continue;
      proved_.splice(proved_.begin(), proved_, it);
      return proved_.front().program;
    }
  }
  auto made = prove(config, progress);
  if (!made && made.error().kind != ErrorKind::Rejected) return made;
  const std::lock_guard lock(proved_mutex_);
  proved_.push_front({id, made});
  if (proved_.size() > kKept) proved_.pop_back();
  return made;
}

Result<std::shared_ptr<const Program>> MegakernelWorkload::prove(const ScheduleConfig& config, const Progress& progress) const {
  progress.phase("lowering");
  AMK_TRY(program, lower(ref_.spec, config, lowering_target(), gpu_format(ref_.spec.dtype)));
  progress.phase("validation");
  const Validation proof = validate(program);
  if (!proof.valid()) return fail(ErrorKind::Rejected, proof.rejection->message, to_json(*proof.rejection));
  // What this GPU's virtual machine cannot hold is refused here as it is there, whether or not the GPU is in this machine.
  AMK_TRY(plan, plan_device(program, config, limits_of(target_)));
  (void)plan;
  return std::make_shared<const Program>(std::move(program));
}

Result<Json> MegakernelWorkload::tuned() const {
  AMK_TRY(resources, find_resources());
  AMK_TRY(entries, load_tuned_configs(resources.config() / "tuned" / "megakernel.json"));
  const auto shown = [](const TunedConfig& e) { return Json{{"config", e.config}, {"latency_us", e.latency_us}, {"evidence", e.evidence}}; };
  Json out, longer = Json::array();
  for (const TunedConfig* e : fastest_by_context(entries, id(), target_.name)) {
    if (e->context <= kPredictPosition) {  // the longest of those is what a judgement times
      out = shown(*e);
      continue;
    }
    longer.push_back(shown(*e));
    longer.back()["context"] = e->context;
  }
  if (!longer.empty()) out["longer_contexts"] = std::move(longer);
  return out;
}

Result<double> MegakernelWorkload::predict_us(const Json& canonical, const Progress& progress) const {
  AMK_TRY(config, parse(canonical));
  AMK_TRY(program, proved_program(config, progress));
  return predicted(config, amk::schedule_id(config), *program);
}

double MegakernelWorkload::predicted(const ScheduleConfig& config, const std::string& id, const Program& program) const {
  constexpr std::size_t kMostRemembered = 20'000;
  const double us = amk::predict_us(program, config, target_, kPredictPosition);
  const std::lock_guard lock(predicted_mutex_);
  if (predicted_us_.size() >= kMostRemembered) predicted_us_.clear();
  predicted_us_[id] = us;
  return us;
}

Result<double> MegakernelWorkload::rank_us(const Json& canonical) const {
  AMK_TRY(config, parse(canonical));
  const std::string id = amk::schedule_id(config);
  {
    const std::lock_guard lock(predicted_mutex_);
    if (const auto known = predicted_us_.find(id); known != predicted_us_.end()) return known->second;
  }
  AMK_TRY(program, lower(ref_.spec, config, lowering_target(), gpu_format(ref_.spec.dtype)));
  AMK_CHECK(check_device_fit(program, config, limits_of(target_)));  // what the virtual machine refuses has no rank
  return predicted(config, id, program);
}

// The program of a few layers says what each further one takes. What grows with their number is the tables in shared memory: rank_us() knows whether
// they fit. What rank_us() remembers is not used here: the number may not depend on what was asked before.
Result<double> MegakernelWorkload::screen_us(const Json& canonical) const {
  AMK_TRY(config, parse(canonical));
  if (ref_.spec.layers <= kFewLayers || config.sm_assignment == SmAssignment::Explicit) return rank_us(canonical);  // tiles named layer by layer
  ModelSpec few = ref_.spec;
  few.layers = kFewLayers;
  AMK_TRY(program, lower(few, config, lowering_target(), gpu_format(few.dtype)));
  AMK_CHECK(check_device_fit(program, config, limits_of(target_)));
  return predict_deeper_us(program, ref_.spec.layers, config, target_, kPredictPosition);
}

Result<Json> MegakernelWorkload::compile(const Json& canonical) const {
  AMK_TRY(config, parse(canonical));
  AMK_TRY(program, proved_program(config));
  return to_json(*program);
}

Result<std::vector<std::shared_ptr<const CpuReference>>> MegakernelWorkload::references(int kv_block, const Progress& progress) const {
  const int positions = CpuReference::wanted_positions(kv_block, executed_.target.max_seq);
  std::vector<std::shared_ptr<const CpuReference>> out;
  // Held while a reference is made: a second job waits for it instead of making its own.
  std::lock_guard lock(mutex_);
  for (int seq = 0; seq < ref_.batch; ++seq) {  // each its own tokens
    std::shared_ptr<const CpuReference>& held = references_[{positions, seq}];
    if (held == nullptr) {
      if (progress.report) progress.report(0.1, "loading weights and running the oracle");
      if (weights_ == nullptr) {
        AMK_TRY(loaded, load_weights(executed_.model));
        weights_ = std::move(loaded);
      }
      AMK_TRY(made, CpuReference::create(weights_, positions, token_seed_ + static_cast<std::uint64_t>(seq), progress.stop));
      held = std::move(made);
    }
    out.push_back(held);
  }
  return out;
}

Status MegakernelWorkload::check_on_cpu(const ScheduleConfig& config, const Program& program, const Progress& progress, Verdict& verdict) const {
  verdict.status = VerdictStatus::Incorrect;
  verdict.notes = what_was_executed(executed_, config);
  if (const Status dry = dry_run(program); !dry) {
    verdict.notes += " Failed: " + dry.error().message + ".";
    return {};
  }
  AMK_TRY(expected, references(config.attention_kv_block, progress));
  const ModelSpec& spec = executed_.model.spec;
  AMK_TRY(executable, lower(spec, config_for(executed_, config), executed_.target, {spec.dtype, DType::F32, DType::F32}));
  if (progress.report) progress.report(0.5, "executing the schedule on the reference VM");
  AMK_TRY(outcome, CpuReference::check(expected, executable, progress));
  verdict.correctness = outcome.correctness;
  verdict.correct = outcome.correct;
  if (outcome.correct) verdict.status = VerdictStatus::Ok;
  if (!outcome.failure.empty()) verdict.notes += " Failed: " + outcome.failure + ".";
  return {};
}

Result<Verdict> MegakernelWorkload::judge_on_cpu(const Json& canonical, const Progress& progress) const {
  AMK_TRY(config, parse(canonical));
  Verdict verdict = verdict_of(*this, amk::to_json(config));

  auto program = proved_program(config, progress);
  if (!program && program.error().kind == ErrorKind::Rejected) {
    reject(verdict, program.error(), "lowering");
    return verdict;
  }
  if (!program) return tl::unexpected<Error>(std::move(program).error());
  verdict.valid = true;
  verdict.tasks = static_cast<std::int64_t>((*program)->tasks.size());
  verdict.weight_bytes = ref_.spec.decode_weight_bytes();
  verdict.smem_bytes = config.smem_bytes_per_block;

  progress.phase("check");
  AMK_CHECK(check_on_cpu(config, **program, progress, verdict));
  progress.phase("timing");  // predicted
  if (verdict.correct) fill_prediction(verdict, predict(**program, config, target_, kPredictPosition));
  if (progress.report) progress.report(1.0, "judged");
  return verdict;
}

}  // namespace amk
