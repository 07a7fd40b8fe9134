#include "kernels/megakernel/device_rules.h"

#include <algorithm>

#include "core/program/packing.h"
#include "core/schedule/rules.h"
#include "kernels/megakernel/device_tasks.h"

namespace amk {
namespace {

class Rules {
 public:
  Rules(const Program& program, const ScheduleConfig& config, const DeviceLimits& limits)
      : program_(program), spec_(program.model), config_(config), limits_(limits) {}

  Status check() const {
    AMK_CHECK(check_batch());
    const KernelKnobs& k = config_.kernel;
    if (k.publish == Publish::Flagged) {
      const Fusion& f = config_.fusion;
      const bool fused = f.norm_qkv && f.qkv_rope_append && f.o_add && f.norm_gate_up && f.gate_up_silu && f.down_add && f.norm_lm_head &&
                         f.lm_head_argmax && (f.combine_o || program_.attention.splits == 1);
      if (!fused)
        return reject_plan(
            "flagged-needs-fused",
            "kernel_knobs.publish \"flagged\" needs every operator group fused, combine+o_proj included unless attention has one split",
            {{"publish", "flagged"}});
      if (!matrix_attention(spec_))
        return reject_plan("flagged-needs-mma-attention",
                           "kernel_knobs.publish \"flagged\" needs bf16 weights, head_dim 32, 64, 96 or 128 and at most 8 query heads a kv head",
                           {{"publish", "flagged"}});
      if (spec_.intermediate % 8 != 0)  // a reader looks at the tags of four words at once: none may be padding that nobody writes
        return reject_plan(
            "flagged-needs-whole-packets",
            "kernel_knobs.publish \"flagged\" needs an intermediate size that is a multiple of 8; it is " + std::to_string(spec_.intermediate),
            {{"intermediate", spec_.intermediate}});
      if (slices_) AMK_CHECK(check_slices());
      if (program_.instructions.size() >= 65535) return reject_plan("flagged-tags", "more instructions than tags", {{"publish", "flagged"}});
    }
    if (spec_.dtype == DType::F32 && (k.gemv_path == GemvPath::Mma || packed_))
      return reject_plan("fp32-needs-fma", "fp32 weights have no matrix instruction: they need gemv_path \"fma\" and weight_layout \"row\"",
                         {{"dtype", "fp32"}});
    if (int8_ && spec_.dtype == DType::F32)
      return reject_plan("int8-needs-16-bit", "int8 weights need a model whose activations meet them in bf16 or fp16; this one is fp32",
                         {{"dtype", "fp32"}});
    if (int8_ && (k.gemv_path != GemvPath::Mma || !packed_))
      return reject_plan("int8-needs-mma",
                         "int8 weights meet integer matrix instructions only: they need gemv_path \"mma\" and weight_layout \"packed\"",
                         {{"weight_format", "int8"}});
    if (spec_.head_dim > 256)
      return reject_plan("head-dim", "head_dim is " + std::to_string(spec_.head_dim) + "; this virtual machine accepts at most 256",
                         {{"head_dim", spec_.head_dim}});
    if (spec_.qk_norm && config_.fusion.qkv_rope_append && (kBatchUnitsMax * kRowUnit) % spec_.head_dim != 0)
      return reject_plan("qk-norm-batch",
                         "the fused norm of q and k heads takes whole heads in batches of 128 rows; head_dim " + std::to_string(spec_.head_dim) +
                             " does not divide that: unfuse qkv+rope+kv_append",
                         {{"head_dim", spec_.head_dim}});
    if (persistent_ != (k.tokens_per_launch > 1))
      return reject_plan("step-sync",
                         std::string("the program's steps are ordered ") + (persistent_ ? "by counters alone" : "by launches") +
                             ", and the config has " + std::to_string(k.tokens_per_launch) + " tokens a launch",
                         {{"tokens_per_launch", k.tokens_per_launch}});
    AMK_CHECK(check_steps());
    if (config_.threads_per_block > limits_.max_threads_per_block)
      return reject_plan("threads",
                         "threads_per_block is " + std::to_string(config_.threads_per_block) + "; the device's limit is " +
                             std::to_string(limits_.max_threads_per_block),
                         {{"threads_per_block", config_.threads_per_block}});
    if (program_.sm_count != limits_.sm_count)
      return reject_plan(
          "sm-count",
          "the program is for " + std::to_string(program_.sm_count) + " multiprocessors; the device has " + std::to_string(limits_.sm_count),
          {{"sm_count", program_.sm_count}});
    return {};
  }

  // Flagged, several steps a launch: the tasks whose signals are releases.
  std::vector<TaskId> signals_of_steps() const {
    std::vector<TaskId> out;
    if (!persistent_ || config_.kernel.publish != Publish::Flagged) return out;
    for (const auto& queue : program_.queues) {
      bool released = false;  // what comes before in the queue, by rows of the LM head behind it
      for (auto id = queue.rbegin(); id != queue.rend(); ++id) {
        const Task& task = program_.tasks[static_cast<std::size_t>(*id)];
        const bool head = task.op == Opcode::Gemv && task.matrix == Matrix::LmHead;
        if (head || task.op == Opcode::Argmax || (appends(task) && !released)) out.push_back(*id);
        released = released || head;
      }
    }
    return out;
  }

 private:
  // A batch: what its own code paths do not cover.
  Status check_batch() const {
    const int batch = program_.batch;
    if (batch == 1) return {};
    const Json witness = {{"batch", batch}};
    if (int8_) return reject_plan("batch-needs-stored", "several sequences need weights as stored, not int8", witness);
    if (packed_ && config_.kernel.gemv_path != GemvPath::Mma)
      return reject_plan(
          "batch-needs-mma",
          "several sequences share a packed weight only by matrix instructions: kernel_knobs.gemv_path \"mma\", or weight_layout \"row\"", witness);
    if (consumer_warps_ < batch)
      return reject_plan("batch-needs-warps",
                         "each of " + std::to_string(batch) + " sequences is finished by a warp of its own: threads_per_block at least " +
                             std::to_string((batch + 1) * 32),
                         witness);
    if (spec_.intermediate % 8 != 0)  // each sequence's slice begins at a whole 16 bytes
      return reject_plan("batch-needs-whole-pieces",
                         "several sequences need an intermediate size that is a multiple of 8; it is " + std::to_string(spec_.intermediate), witness);
    return {};
  }

  // Several steps a launch: an SM begins a step when its first task's edges from the step before are met (target 0), the argmax among them.
  Status check_steps() const {
    if (!persistent_) return {};
    for (const auto& queue : program_.queues) {
      bool begins = queue.empty();
      for (const TaskId id : queue)
        for (const Wait& wait : program_.tasks[static_cast<std::size_t>(id)].waits) {
          if (wait.target != 0) continue;
          if (id != queue.front())
            return reject_plan("step-gate",
                               task_name(program_, id) + " waits for the step before on its own; an SM does so once, before its first task",
                               {{"task", task_name(program_, id)}});
          begins = begins || wait.counter == program_.tasks.back().signal;
        }
      if (!begins)
        return reject_plan("step-gate",
                           task_name(program_, queue.front()) + " is the first of its SM and does not wait for the argmax of the step before",
                           {{"task", task_name(program_, queue.front())}});
    }
    // Flagged data carries itself from task to task; the cache does not. Whoever appends must signal, with a release, something that the next step
    // waits for: rows of the LM head, through the argmax, or else the append itself.
    for (const TaskId id : signals_of_steps()) {
      const Task& task = program_.tasks[static_cast<std::size_t>(id)];
      if (!appends(task)) continue;
      for (const auto& queue : program_.queues) {
        if (queue.empty()) continue;
        const std::vector<Wait>& waits = program_.tasks[static_cast<std::size_t>(queue.front())].waits;
        if (std::find(waits.begin(), waits.end(), Wait{task.signal, 0}) == waits.end())
          return reject_plan(
              "step-gate", task_name(program_, queue.front()) + " begins a step without a wait for " + task_name(program_, id) + " of the one before",
              {{"task", task_name(program_, queue.front())}});
      }
    }
    return {};
  }
  bool appends(const Task& task) const {
    return std::any_of(task.writes.begin(), task.writes.end(),
                       [this](const Region& r) { return program_.buffers[static_cast<std::size_t>(r.buffer)].space == Space::Kv; });
  }
  // Slices (device/slices.cuh): what a warp can hold, and finish alone. That it goes with flagged publishing is a rule of the config.
  Status check_slices() const {
    if (spec_.qk_norm)
      return reject_plan(
          "slices-needs-plain-heads",
          "kernel_knobs.gemv_path \"slices\" finishes 8 rows at a time, and this model norms whole heads of q and k: gemv_path \"mma\" or \"fma\"",
          {{"qk_norm", true}});
    const int widest = std::max({spec_.hidden, spec_.q_rows(), spec_.intermediate}), most = kSliceBlocks * kBlockColumns * consumer_warps_;
    if (widest > most)
      return reject_plan("slices-too-wide",
                         "kernel_knobs.gemv_path \"slices\" takes vectors of at most " + std::to_string(kSliceBlocks * kBlockColumns) +
                             " columns a warp, " + std::to_string(most) + " with threads_per_block " + std::to_string(config_.threads_per_block) +
                             "; this model's widest has " + std::to_string(widest),
                         {{"columns", widest}, {"most", most}});
    if (!attention_in_o(config_.fusion)) return {};
    if (spec_.kv_heads > kMostSums)
      return reject_plan("attention-o-few-heads",
                         "attention and o_proj in one group leave a sum a kv head, which each reader adds up: at most " + std::to_string(kMostSums) +
                             " kv heads; this model has " + std::to_string(spec_.kv_heads),
                         {{"kv_heads", spec_.kv_heads}, {"most", kMostSums}});
    const int group = spec_.gqa() * spec_.head_dim;
    if (group % kBlockColumns != 0)
      return reject_plan("attention-o-whole-blocks",
                         "attention and o_proj in one group take a kv head's columns of O as whole blocks of " + std::to_string(kBlockColumns) +
                             "; this model's have " + std::to_string(group),
                         {{"columns", group}});
    return {};
  }

  const Program& program_;
  const ModelSpec& spec_;
  const ScheduleConfig& config_;
  const DeviceLimits& limits_;
  const bool persistent_ = program_.step_sync == StepSync::Persistent;
  const bool int8_ = spec_.weight_format == WeightFormat::Int8;
  const bool slices_ = config_.kernel.gemv_path == GemvPath::Slices;
  const bool packed_ = config_.kernel.weight_layout == WeightLayout::Packed;
  const int consumer_warps_ = config_.threads_per_block / 32 - 1;
};

}  // namespace

tl::unexpected<Error> reject_plan(const std::string& rule, const std::string& message, Json witness) {
  return fail(ErrorKind::Rejected, message, {{"rule", rule}, {"message", message}, {"witness", std::move(witness)}});
}

Status check_device_rules(const Program& program, const ScheduleConfig& config, const DeviceLimits& limits) {
  return Rules(program, config, limits).check();
}

std::vector<TaskId> signals_of_steps(const Program& program, const ScheduleConfig& config) { return Rules(program, config, {}).signals_of_steps(); }

}  // namespace amk
