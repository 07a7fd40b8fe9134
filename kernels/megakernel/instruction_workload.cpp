#include "kernels/megakernel/instruction_workload.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "core/base/json.h"
#include "core/program/lower_instruction.h"
#include "core/program/packing.h"
#include "core/program/program_json.h"
#include "core/program/validator.h"
#include "core/schedule/fields.h"
#include "core/schedule/fusion.h"
#include "kernels/megakernel/gpu_model.h"

namespace amk {
namespace {

bool reads_knob(std::string_view op, std::string_view knob) {
  const auto any = [&](std::initializer_list<std::string_view> names) { return std::find(names.begin(), names.end(), knob) != names.end(); };
  if (any({"sm_assignment", "threads_per_block", "kernel_knobs.publish"})) return true;
  if (op == "attention") return any({"tiling.attention.kv_block", "kernel_knobs.counters"});
  if (any({"tiling.gemv.N_tile", "pipelining_depth", "smem_bytes_per_block", "kernel_knobs.chunk_bytes", "kernel_knobs.inflight_chunks",
           "kernel_knobs.gemv_path", "kernel_knobs.weight_layout", "kernel_knobs.cols_per_warp", "kernel_knobs.cpasync", "kernel_knobs.cpa_stages",
           "kernel_knobs.cpa_cols"}))
    return true;
  if (op == "qkv") return any({"fusion_grouping[norm+qkv]", "fusion_grouping[qkv+rope+kv_append]", "kernel_knobs.counters"});
  if (op == "o_proj") return any({"fusion_grouping[o_proj+add]"});
  if (op == "gate_up") return any({"fusion_grouping[norm+gate_up]", "fusion_grouping[gate_up+silu_mul]"});
  if (op == "down") return any({"fusion_grouping[down+add]"});
  return any({"fusion_grouping[norm+lm_head]", "fusion_grouping[lm_head+argmax]"});
}

}  // namespace

InstructionWorkload::InstructionWorkload(std::shared_ptr<const MegakernelWorkload> model, std::string_view op)
    : model_(std::move(model)),
      op_(op),
      id_(model_->id() + "#" + op_),
      executed_(executed_on_cpu(model_->model(), model_->lowering_target())),
      seed_((std::uint64_t{std::random_device{}()} << 32) | std::random_device{}()) {
  const SearchSpace& whole = model_->space();
  for (std::size_t k = 0; k < whole.knobs.size(); ++k) {
    if (!reads_knob(op_, whole.knobs[k].name)) continue;
    knobs_.push_back(k);
    space_.knobs.push_back(whole.knobs[k]);
    // Flagged data is refused alone (lower_instruction.h). It is the last choice: the others keep their places.
    if (Knob& knob = space_.knobs.back();
        knob.name == "kernel_knobs.publish" && knob.default_index + 1 < knob.choices.size() && knob.choices.back() == "flagged")
      knob.choices.pop_back();
  }
  const Point defaults = whole.default_point();
  for (const Constraint& rule : whole.constraints) {
    Constraint mine = rule;
    mine.holds = [holds = rule.holds, defaults, knobs = knobs_](const Point& point) {
      Point all = defaults;
      for (std::size_t k = 0; k < knobs.size(); ++k) all[knobs[k]] = point[k];
      return holds(all);
    };
    if (mine.reads) {
      std::vector<std::string_view> names;
      for (const std::uint16_t k : *rule.reads) names.push_back(whole.knobs[k].name);
      *mine.reads = space_.places_of(names);
    }
    space_.constraints.push_back(std::move(mine));
  }
}

Result<std::shared_ptr<const InstructionWorkload>> InstructionWorkload::create(std::shared_ptr<const MegakernelWorkload> model, std::string_view op) {
  if (!is_instruction_op(op)) return bad_field("instruction", std::string(op), accepted_instruction_ops());
  std::shared_ptr<const InstructionWorkload> out(new InstructionWorkload(std::move(model), op));
  AMK_TRY(defaults, out->parse(out->default_config()));
  AMK_TRY(fits, out->proved_program(defaults));
  (void)fits;
  return out;
}

Json InstructionWorkload::features() const {
  Json out = model_->features();
  out["weight_bytes"] = weight_bytes();
  for (const std::string_view op : instruction_ops()) out["op_" + std::string(op)] = op == op_ ? 1 : 0;
  return out;
}

Point InstructionWorkload::whole_point(const Point& point) const {
  Point out = model_->space().default_point();
  for (std::size_t k = 0; k < knobs_.size() && k < point.size(); ++k) out[knobs_[k]] = point[k];
  return out;
}

Result<ScheduleConfig> InstructionWorkload::parse(const Json& config) const {
  AMK_TRY(parsed, model_->parse(config));
  const ScheduleConfig defaults = amk::config_at(model_->space(), model_->space().default_point());
  const auto unread = [this](std::string_view knob, const Json& value, const Json& normal) {
    return bad_field(knob, value, normal.dump() + " (" + op_ + " does not read it)");
  };
  for (const Field& field : schedule_fields())
    if (field.get(parsed) != field.get(defaults) && !reads_knob(op_, field.path))
      return unread(field.path, field.to_json(field.get(parsed)), field.to_json(field.get(defaults)));
  for (const FusionAtom& atom : fusion_atoms()) {
    const std::string knob = "fusion_grouping[" + std::string(atom.name) + "]";
    if (parsed.fusion.*atom.member != defaults.fusion.*atom.member && !reads_knob(op_, knob))
      return unread(knob, parsed.fusion.*atom.member, defaults.fusion.*atom.member);
  }
  return parsed;
}

Result<Json> InstructionWorkload::canonical(const Json& config) const {
  AMK_TRY(parsed, parse(config));
  return to_json(parsed);
}

Result<Point> InstructionWorkload::point_of(const Json& canonical) const {
  AMK_TRY(parsed, parse(canonical));
  AMK_TRY(whole, amk::point_of(model_->space(), parsed));
  Point out;
  for (const std::size_t k : knobs_) out.push_back(whole[k]);
  if (!space_.in_range(out)) return bad_field("config", canonical, "choices of the search space of " + id_);
  return out;
}

Json InstructionWorkload::config_at(const Point& point) const { return model_->config_at(whole_point(point)); }

Roofline InstructionWorkload::floor(int position) const {
  const ModelSpec& spec = model_->model().spec;
  return instruction_roofline(spec, op_, target(), position, dtype_bytes(gpu_format(spec.dtype).kv));
}

std::int64_t InstructionWorkload::weight_bytes() const {
  if (op_ == "attention") return 0;
  GpuTarget no_cache = target();
  no_cache.l2_bytes = 0;
  return instruction_roofline(model_->model().spec, op_, no_cache, 0).hbm_bytes;
}

Result<Program> InstructionWorkload::proved_program(const ScheduleConfig& config, const Progress& progress) const {
  progress.phase("lowering");
  const ModelSpec& spec = model_->model().spec;
  AMK_TRY(program, lower_instruction(spec, op_, config, model_->lowering_target(), gpu_format(spec.dtype)));
  progress.phase("validation");
  const Validation proof = validate(program);
  if (!proof.valid()) return fail(ErrorKind::Rejected, proof.rejection->message, amk::to_json(*proof.rejection));
  AMK_TRY(plan, plan_device(program, config, limits_of(target())));
  (void)plan;
  return program;
}

Result<double> InstructionWorkload::predict_us(const Json& canonical, const Progress& progress) const {
  AMK_TRY(config, parse(canonical));
  AMK_TRY(program, proved_program(config, progress));
  return predict_part(program, config, target(), kPredictPosition, floor(kPredictPosition)).latency_us;
}

Result<Json> InstructionWorkload::compile(const Json& canonical) const {
  AMK_TRY(config, parse(canonical));
  AMK_TRY(program, proved_program(config));
  return amk::to_json(program);
}

Result<std::shared_ptr<const InstructionReference>> InstructionWorkload::reference(const Progress& progress) const {
  std::lock_guard lock(mutex_);  // a second job waits for the first one's
  if (reference_ == nullptr) {
    if (progress.report) progress.report(0.1, "running the instruction's reference");
    if (weights_ == nullptr) {
      AMK_TRY(loaded, load_weights(executed_.model));
      weights_ = std::move(loaded);
    }
    AMK_TRY(made, InstructionReference::create(weights_, op_, executed_.target.max_seq, {DType::F32, DType::F32, DType::F32},
                                               instruction_draws(executed_.model.spec, op_, executed_.target.max_seq, seed_), progress.stop));
    reference_ = std::move(made);
  }
  return reference_;
}

Status InstructionWorkload::check_on_cpu(const ScheduleConfig& config, const Program& program, const Progress& progress, Verdict& verdict) const {
  verdict.status = VerdictStatus::Incorrect;
  verdict.notes = "Instruction " + op_ + " alone, in every layer: checked on the CPU in fp32 on random inputs";
  verdict.notes += executed_.stand_in ? ", its arithmetic on a stand-in of the same architecture." : ".";
  if (const Status dry = dry_run(program); !dry) {
    verdict.notes += " Failed: " + dry.error().message + ".";
    return {};
  }
  AMK_TRY(expected, reference(progress));
  const NumericFormat exact{DType::F32, DType::F32, DType::F32};
  AMK_TRY(executable, lower_instruction(executed_.model.spec, op_, config_for(executed_, config), executed_.target,
                                        {executed_.model.spec.dtype, DType::F32, DType::F32}));
  if (progress.report) progress.report(0.5, "executing the instruction on the reference VM");
  std::vector<float> got[2];
  for (std::uint64_t run = 0; run < 2; ++run) {
    AMK_TRY(vm, ReferenceVm::create(executable, weights_, {.interleaving_seed = run + 1}));
    for (const InstructionDraw& draw : expected->draws()) {
      if (progress.stop.stop_requested()) return fail(ErrorKind::Cancelled, "cancelled during the correctness check");
      const auto values = run_on_vm(vm, executable, draw, exact);
      if (!values) {
        verdict.notes += " Failed: " + values.error().message + ".";
        return {};
      }
      got[run].insert(got[run].end(), values->begin(), values->end());
    }
  }
  const bool repeated = got[0].size() == got[1].size() && std::memcmp(got[0].data(), got[1].data(), got[0].size() * sizeof(float)) == 0;
  const auto outcome = expected->compare(got[0], repeated);
  verdict.correctness = outcome.correctness;
  verdict.correct = outcome.correct;
  if (outcome.correct) verdict.status = VerdictStatus::Ok;
  if (!outcome.failure.empty()) verdict.notes += " Failed: " + outcome.failure + ".";
  return {};
}

Result<Verdict> InstructionWorkload::judge_on_cpu(const Json& canonical, const Progress& progress) const {
  AMK_TRY(config, parse(canonical));
  Verdict verdict = verdict_of(*this, amk::to_json(config));
  const auto program = proved_program(config, progress);
  if (!program && program.error().kind != ErrorKind::Rejected) return tl::unexpected<Error>(program.error());
  if (!program) {
    reject(verdict, program.error(), "lowering");
    return verdict;
  }
  verdict.valid = true;
  verdict.tasks = static_cast<std::int64_t>(program->tasks.size());
  verdict.weight_bytes = weight_bytes();
  verdict.smem_bytes = config.smem_bytes_per_block;
  progress.phase("check");
  AMK_CHECK(check_on_cpu(config, *program, progress, verdict));
  progress.phase("timing");  // predicted
  if (verdict.correct) fill_prediction(verdict, predict_part(*program, config, target(), kPredictPosition, floor(kPredictPosition)));
  if (progress.report) progress.report(1.0, "judged");
  return verdict;
}

}  // namespace amk
