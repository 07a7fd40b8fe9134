#include "core/program/lower.h"

#include <algorithm>
#include <cmath>

#include "core/program/lower_emit.h"
#include "core/program/lower_instruction.h"
#include "core/program/lower_pages.h"
#include "core/program/lower_reject.h"
#include "core/program/packing.h"
#include "core/schedule/rules.h"

namespace amk {
namespace {

constexpr int kMaxSmCount = 4096;

Status check_target(const ModelSpec& spec, const LoweringTarget& target) {
  if (target.sm_count < 1 || target.sm_count > kMaxSmCount)
    return bad_field("target.sm_count", target.sm_count, "1 to " + std::to_string(kMaxSmCount));
  if (target.max_seq < 1 || target.max_seq > spec.max_position)
    return bad_field("target.max_seq", target.max_seq, "1 to the model's max_position, " + std::to_string(spec.max_position));
  if (target.batch < 1 || target.batch > kMaxBatch) return bad_field("target.batch", target.batch, "1 to " + std::to_string(kMaxBatch));
  if (!target.sm_weight.empty() && target.sm_weight.size() != static_cast<std::size_t>(target.sm_count))
    return bad_field("target.sm_weight", target.sm_weight.size(), "no weights, or one for each of " + std::to_string(target.sm_count) + " SMs");
  for (double weight : target.sm_weight)
    if (!(weight > 0) || !std::isfinite(weight)) return bad_field("target.sm_weight", weight, "positive finite numbers");
  return {};
}

Status check_format(const NumericFormat& format) {
  for (const auto& [field, dtype] :
       {std::pair{"format.weights", format.weights}, {"format.activations", format.activations}, {"format.kv", format.kv}})
    if (dtype != DType::F32 && dtype != DType::F16 && dtype != DType::BF16)
      return fail(ErrorKind::Unsupported, std::string(field) + " is not a floating-point format; accepted: fp32, fp16, bf16", {{"field", field}});
  return {};
}

Status check_fit(const ScheduleConfig& config, const LoweringTarget& target) {
  if (const ConfigRule* rule = violated_rule(config))
    return lowering::reject(rule->name, std::string(rule->reason),
                            {{"smem_bytes_per_block", config.smem_bytes_per_block},
                             {"chunk_bytes", config.kernel.chunk_bytes},
                             {"inflight_chunks", config.kernel.inflight_chunks}});
  if (config.smem_bytes_per_block > target.smem_optin_bytes)
    return lowering::reject("smem-over-cap",
                            "smem_bytes_per_block is " + std::to_string(config.smem_bytes_per_block) + "; accepted: at most the device's " +
                                std::to_string(target.smem_optin_bytes),
                            {{"smem_bytes_per_block", config.smem_bytes_per_block}, {"smem_optin_bytes", target.smem_optin_bytes}});
  return {};
}

}  // namespace

Result<Program> lower(const ModelSpec& spec, const ScheduleConfig& config, const LoweringTarget& target, const NumericFormat& format) {
  return lowering::lower_part(spec, config, target, format, {});
}

Result<Program> lowering::lower_part(const ModelSpec& spec, const ScheduleConfig& config, const LoweringTarget& target, const NumericFormat& format,
                                     std::string_view op) {
  AMK_CHECK(check_packable(spec));
  AMK_CHECK(check_target(spec, target));
  AMK_CHECK(check_format(format));
  AMK_CHECK(check_fit(config, target));
  if (attention_in_o(config.fusion) && spec.weight_format == WeightFormat::Int8)
    return lowering::reject("attention-o-needs-stored", "attention and o_proj in one group take weights as stored, not int8",
                            {{"weight_format", "int8"}});
  if (!op.empty() && config.kernel.tokens_per_launch > 1)
    return lowering::reject("part-of-one-step", "part of a step has no argmax to feed back: kernel_knobs.tokens_per_launch must be 1",
                            {{"tokens_per_launch", config.kernel.tokens_per_launch}});

  lowering::Plan plan = lowering::make_plan(spec, config, target, format);
  if (!op.empty()) plan = lowering::isolate(std::move(plan), op);
  AMK_TRY(runs, lowering::place(spec, config, target, plan));

  Program program;
  program.model = spec;
  program.schedule_id = schedule_id(config);
  program.sm_count = target.sm_count;
  program.threads_per_block = config.threads_per_block;
  program.batch = target.batch;
  program.max_seq = target.max_seq;
  program.attention = plan.attention;
  if (config.kernel.tokens_per_launch > 1) program.step_sync = StepSync::Persistent;
  if (config.smem_bytes_per_block > 0) {
    program.ring.chunk_bytes = config.kernel.chunk_bytes;
    program.ring.ring_bytes = config.smem_bytes_per_block / config.kernel.chunk_bytes * config.kernel.chunk_bytes;
    program.ring.inflight_chunks = config.kernel.inflight_chunks;
    program.ring.depth = config.pipelining_depth;
  }
  // One partial per task that makes one: only placement knows how many.
  for (std::size_t i = 0; i < plan.instructions.size(); ++i) {
    if (plan.instructions[i].partial == kNone) continue;
    Buffer& partials = plan.buffers[static_cast<std::size_t>(plan.instructions[i].partial)];
    std::int64_t& count = partials.shape[partials.shape.size() - 2];
    count = static_cast<std::int64_t>(runs[i].size());
    partials.bytes = target.batch * count * kArgmaxWords * dtype_bytes(DType::I32);
  }
  program.buffers = std::move(plan.buffers);
  lowering::assign_storage(spec, config, plan, program);
  lowering::emit_tasks(spec, plan, runs, program);
  lowering::order_steps(config, program);

  // Signed 32 bits: a device may compare counters by their difference.
  std::int32_t fan_in = 1;
  for (const Counter& counter : program.counters) fan_in = std::max(fan_in, counter.fan_in);
  program.max_steps = std::numeric_limits<std::int32_t>::max() / fan_in - 1;
  return program;
}

}  // namespace amk
