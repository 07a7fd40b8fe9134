#include "core/reference/reference_vm_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/program/packing.h"
#include "core/reference/reference_vm_attention.h"

namespace amk::vm {
namespace {

std::span<const float> load(const StepContext& context, const BoundRegion& region, std::vector<float>& scratch) {
  return load_f32(region.at(context.position), region.dtype, region.count, scratch);
}

void store(const StepContext& context, const BoundRegion& region, std::span<const float> values) {
  store_f32(region.at(context.position), region.dtype, values);
}

std::span<const float> vector_weight(const StepContext& context, const BoundRegion& region) {
  return context.weights.vector(region.buffer, region.first, region.count);
}

float inverse_rms(std::span<const float> x, double eps) {
  return 1.0f / std::sqrt(dot(x, x) / static_cast<float>(x.size()) + static_cast<float>(eps));
}

float silu(float x) { return x / (1.0f + std::exp(-x)); }

// Rotates pair i of a head: cosines then sines of the current position.
struct Rotation {
  std::span<const float> cos, sin;
  void apply(std::size_t i, float& first, float& second) const {
    const float a = first * cos[i] - second * sin[i];
    second = second * cos[i] + first * sin[i];
    first = a;
  }
};

Rotation rotation_at(const StepContext& context, const BoundRegion& table) {
  const std::size_t half = static_cast<std::size_t>(context.program.model.head_dim) / 2;
  const auto* base = reinterpret_cast<const float*>(table.data) + static_cast<std::size_t>(context.position) * 2 * half;
  return {{base, half}, {base + half, half}};
}

struct Best {
  float value = -std::numeric_limits<float>::infinity();
  std::int32_t index = -1;
  // The lowest index among equals; a NaN never wins, and an all-NaN slice leaves index -1.
  void offer(float v, std::int32_t i) {
    if (v > value || (v == value && (index < 0 || i < index))) {
      value = v;
      index = i;
    }
  }
};

void store_best(const BoundRegion& region, int position, const Best& best) {
  std::memcpy(region.at(position), &best.value, 4);
  std::memcpy(region.at(position) + 4, &best.index, 4);
}

Status embed(const StepContext& context, const BoundTask& task) {
  std::int32_t token = 0;
  std::memcpy(&token, task.inputs[0].at(context.position), 4);
  if (token < 0 || token >= context.program.model.vocab) return bad_field("token", token, "0 to " + std::to_string(context.program.model.vocab - 1));
  const auto row = context.weights.row(task.weight.buffer, token, context.scratch.row);
  store(context, task.outputs[0], row.subspan(static_cast<std::size_t>(task.task->row_begin), static_cast<std::size_t>(task.outputs[0].count)));
  return {};
}

void rms_norm(const StepContext& context, const BoundTask& task) {
  const auto x = load(context, task.inputs[0], context.scratch.a);
  const auto weight = vector_weight(context, task.norm);
  const float scale = inverse_rms(x, context.program.model.rms_eps);
  auto& out = context.scratch.outputs;
  out.resize(weight.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = x[static_cast<std::size_t>(task.task->row_begin) + i] * scale * weight[i];
  store(context, task.outputs[0], out);
}

// The vector that a Gemv multiplies: normed or merged on the way in when those are fused.
std::span<const float> gemv_input(const StepContext& context, const BoundTask& task) {
  Scratch& scratch = context.scratch;
  const ModelSpec& spec = context.program.model;
  if (task.task->fused & kFusedCombine) {
    scratch.input.resize(static_cast<std::size_t>(spec.q_rows()));
    combine_partials(context, task, spec.kv_heads, scratch.input);
    return scratch.input;
  }
  auto x = load(context, task.inputs[0], scratch.a);
  if (!(task.task->fused & kFusedNorm)) return x;
  if (const auto hidden = static_cast<std::size_t>(spec.hidden); x.size() > hidden) {  // one vector a kv head, to be added up
    scratch.b.assign(x.begin(), x.begin() + spec.hidden);
    for (std::size_t i = hidden; i < x.size(); ++i) scratch.b[i % hidden] += x[i];
    x = scratch.b;
  }
  const auto weight = vector_weight(context, task.norm);
  const float scale = inverse_rms(x, spec.rms_eps);
  scratch.input.resize(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) scratch.input[i] = x[i] * scale * weight[i];
  return scratch.input;
}

// Rows of q and k heads, in packed order: qk-norm over whole heads, then rotation of the pairs that meet in a unit.
void norm_and_rotate(const StepContext& context, const BoundTask& task, std::span<float> rows) {
  const ModelSpec& spec = context.program.model;
  const Rotation rotation = rotation_at(context, task.rope);
  const std::int32_t rotated_end = std::min(task.task->row_end, spec.q_rows() + spec.kv_rows());
  for (std::int32_t r = task.task->row_begin; r < rotated_end; r += kRowUnit) {
    float* unit = rows.data() + (r - task.task->row_begin);
    if (task.has_head_norm && r % spec.head_dim == 0) {
      const std::span<float> head(unit, static_cast<std::size_t>(spec.head_dim));
      const float scale = inverse_rms(head, spec.rms_eps);
      const auto weight = vector_weight(context, r < spec.q_rows() ? task.q_norm : task.k_norm);
      for (std::int32_t i = 0; i < spec.head_dim; ++i) head[i] *= scale * weight[logical_row(spec, Matrix::Qkv, r + i).row % spec.head_dim];
    }
    const std::size_t first_pair = static_cast<std::size_t>(r % spec.head_dim) / 2;  // a unit holds as many pairs as half its rows
    for (std::int32_t k = 0; k < kPairsPerUnit; ++k) rotation.apply(first_pair + static_cast<std::size_t>(k), unit[k], unit[k + kPairsPerUnit]);
  }
}

void add_residual(const StepContext& context, const BoundTask& bound, std::vector<float>& out) {
  if (bound.residuals.empty()) return;
  Scratch& scratch = context.scratch;
  const auto first = load(context, bound.residuals[0], scratch.b);
  scratch.c.assign(first.begin(), first.end());
  for (std::size_t v = 1; v < bound.residuals.size(); ++v) {
    const auto next = load(context, bound.residuals[v], scratch.b);
    for (std::size_t i = 0; i < next.size(); ++i) scratch.c[i] += next[i];
  }
  for (std::size_t i = 0; i < out.size(); ++i) out[i] += scratch.c[i];
}

void attention_o(const StepContext& context, const BoundTask& bound) {
  const Task& task = *bound.task;
  attend(context, bound);
  Scratch& scratch = context.scratch;
  scratch.input = scratch.outputs;
  const std::size_t group = scratch.input.size();
  auto& out = scratch.outputs;
  out.resize(static_cast<std::size_t>(task.row_end - task.row_begin));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = dot(context.weights.row(bound.weight.buffer, task.row_begin + static_cast<std::int64_t>(i), scratch.row)
                     .subspan(static_cast<std::size_t>(task.head) * group, group),
                 scratch.input);
  if (bound.has_bias) {
    const auto bias = vector_weight(context, bound.bias);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += bias[i];
  }
  add_residual(context, bound, out);
  store(context, bound.outputs[0], out);
}

void gemv(const StepContext& context, const BoundTask& bound) {
  const Task& task = *bound.task;
  Scratch& scratch = context.scratch;
  const auto x = gemv_input(context, bound);
  auto& out = scratch.outputs;
  out.resize(static_cast<std::size_t>(task.row_end - task.row_begin));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = dot(context.weights.row(bound.weight.buffer, task.row_begin + static_cast<std::int64_t>(i), scratch.row), x);
  if (bound.has_scale) {
    const auto scale = vector_weight(context, bound.scale);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] *= scale[i];
  }
  if (bound.has_bias) {
    const auto bias = vector_weight(context, bound.bias);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += bias[i];
  }
  if (task.matrix == Matrix::Qkv && (task.fused & kFusedRopeAppend)) norm_and_rotate(context, bound, out);
  if (task.matrix == Matrix::GateUp && (task.fused & kFusedSiluMul)) {
    for (std::size_t i = 0; i < bound.rows.size(); ++i) {
      const std::size_t gate = i / kPairsPerUnit * kRowUnit + i % kPairsPerUnit;
      out[i] = silu(out[gate]) * out[gate + kPairsPerUnit];  // i <= gate: nothing that is still needed is overwritten
    }
    out.resize(bound.rows.size());
  }
  add_residual(context, bound, out);
  for (std::size_t i = 0; i < out.size(); ++i) store_f32(bound.rows[i].at(context.position), bound.rows[i].dtype, out[i]);
  if (task.fused & kFusedArgmax) {
    Best best;
    for (std::size_t i = 0; i < out.size(); ++i) best.offer(out[i], task.row_begin + static_cast<std::int32_t>(i));
    store_best(bound.argmax, context.position, best);
  }
}

void rope(const StepContext& context, const BoundTask& task) {
  const ModelSpec& spec = context.program.model;
  const Rotation rotation = rotation_at(context, task.rope);
  const std::size_t hd = static_cast<std::size_t>(spec.head_dim);
  std::int32_t head = task.task->row_begin;
  for (std::size_t part = 0; part < task.inputs.size(); ++part) {
    const auto x = load(context, task.inputs[part], context.scratch.a);
    auto& out = context.scratch.outputs;
    out.assign(x.begin(), x.end());
    for (std::size_t at = 0; at < out.size(); at += hd, ++head) {
      const std::span<float> values(out.data() + at, hd);
      if (task.has_head_norm) {
        const float scale = inverse_rms(values, spec.rms_eps);
        const auto weight = vector_weight(context, head < spec.heads ? task.q_norm : task.k_norm);
        for (std::size_t i = 0; i < hd; ++i) values[i] *= scale * weight[i];
      }
      for (std::size_t i = 0; i < hd / 2; ++i) rotation.apply(i, values[i], values[i + hd / 2]);
    }
    store(context, task.outputs[part], out);
  }
}

void kv_append(const StepContext& context, const BoundTask& task) {
  const std::size_t hd = static_cast<std::size_t>(context.program.model.head_dim);
  const std::size_t heads = task.outputs.size() / 2;
  for (std::size_t cache = 0; cache < 2; ++cache) {
    const auto rows = load(context, task.inputs[cache], context.scratch.a);
    for (std::size_t h = 0; h < heads; ++h) store(context, task.outputs[cache * heads + h], rows.subspan(h * hd, hd));
  }
}

template <class Op>
void elementwise(const StepContext& context, const BoundTask& task, Op op) {
  const auto a = load(context, task.inputs[0], context.scratch.a);
  const auto b = load(context, task.inputs[1], context.scratch.b);
  auto& out = context.scratch.outputs;
  out.resize(a.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = op(a[i], b[i]);
  store(context, task.outputs[0], out);
}

void argmax_partial(const StepContext& context, const BoundTask& task) {
  const auto logits = load(context, task.inputs[0], context.scratch.a);
  Best best;
  for (std::size_t i = 0; i < logits.size(); ++i) best.offer(logits[i], task.task->row_begin + static_cast<std::int32_t>(i));
  store_best(task.outputs[0], context.position, best);
}

void argmax(const StepContext& context, const BoundTask& task) {
  const std::byte* from = task.inputs[0].at(context.position);
  Best best;
  for (std::int64_t i = 0; i < task.inputs[0].count / kArgmaxWords; ++i, from += 4 * kArgmaxWords) {
    float value;
    std::int32_t index;
    std::memcpy(&value, from, 4);
    std::memcpy(&index, from + 4, 4);
    if (index >= 0) best.offer(value, index);
  }
  std::memcpy(task.outputs[0].at(context.position), &best.index, 4);
}

}  // namespace

Status execute(const StepContext& context, const BoundTask& task) {
  if (context.position < task.task->pos_lo || context.position >= task.task->pos_hi) return {};
  switch (task.task->op) {
    case Opcode::Embed:
      return embed(context, task);
    case Opcode::RmsNorm:
      rms_norm(context, task);
      break;
    case Opcode::Gemv:
      gemv(context, task);
      break;
    case Opcode::Rope:
      rope(context, task);
      break;
    case Opcode::KvAppend:
      kv_append(context, task);
      break;
    case Opcode::AttentionTile:
      attention_tile(context, task);
      break;
    case Opcode::AttentionCombine:
      attention_combine(context, task);
      break;
    case Opcode::SiluMul:
      elementwise(context, task, [](float gate, float up) { return silu(gate) * up; });
      break;
    case Opcode::Add:
      elementwise(context, task, [](float a, float b) { return a + b; });
      break;
    case Opcode::ArgmaxPartial:
      argmax_partial(context, task);
      break;
    case Opcode::Argmax:
      argmax(context, task);
      break;
    case Opcode::AttentionO:
      attention_o(context, task);
      break;
  }
  return {};
}

}  // namespace amk::vm
