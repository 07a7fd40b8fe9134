#include "core/reference/reference_vm_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace amk::vm {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Positions of split `split` that a query at `position` sees, ascending: blocks split, split + splits, …, cut to the sliding window.
template <class Visit>
void visit_keys(const Program& program, int split, int splits, int position, Visit visit) {
  const std::int64_t block = program.attention.kv_block;
  const std::int64_t first = program.model.sliding_window ? std::max<std::int64_t>(0, std::int64_t{position} - *program.model.sliding_window + 1) : 0;
  for (std::int64_t begin = split * block; begin <= position; begin += splits * block) {
    const std::int64_t end = std::min<std::int64_t>(begin + block, std::int64_t{position} + 1);
    for (std::int64_t p = std::max(begin, first); p < end; ++p) visit(p);
  }
}

// Of one split, into the scratch's outputs.
void attention_split(const StepContext& context, const BoundTask& bound, int split) {
  const ModelSpec& spec = context.program.model;
  const Task& task = *bound.task;
  const std::size_t hd = static_cast<std::size_t>(spec.head_dim), group = static_cast<std::size_t>(spec.gqa());
  const bool partial = task.splits > 1;
  const std::size_t record = hd + (partial ? kPartialTail : 0);
  const float scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  Scratch& scratch = context.scratch;
  const auto q = load_f32(bound.inputs[0].at(context.position), bound.inputs[0].dtype, bound.inputs[0].count, scratch.a);
  const auto cache_row = [&](const BoundRegion& cache, std::int64_t p) {
    const std::int64_t bytes = static_cast<std::int64_t>(hd) * dtype_bytes(cache.dtype);
    return load_f32(cache.data + p * bytes, cache.dtype, static_cast<std::int64_t>(hd), scratch.row);
  };
  auto& out = scratch.outputs;
  out.assign(group * record, 0.0f);
  auto& scores = scratch.c;
  for (std::size_t h = 0; h < group; ++h) {
    float* head = out.data() + h * record;
    scores.clear();
    float maximum = kNothing, sum = 0.0f;
    visit_keys(context.program, split, task.splits, context.position, [&](std::int64_t p) {
      scores.push_back(dot(q.subspan(h * hd, hd), cache_row(bound.inputs[1], p)) * scale);
      // Not std::max: a NaN score must reach the output, or reading unwritten keys would pass unseen.
      if (!(scores.back() <= maximum)) maximum = scores.back();
    });
    std::size_t i = 0;
    visit_keys(context.program, split, task.splits, context.position, [&](std::int64_t p) {
      const float weight = std::exp(scores[i++] - maximum);
      sum += weight;
      const auto value = cache_row(bound.inputs[2], p);
      for (std::size_t d = 0; d < hd; ++d) head[d] += weight * value[d];
    });
    if (partial) {
      head[hd] = maximum;
      head[hd + 1] = sum;
    } else {
      for (std::size_t d = 0; d < hd; ++d) head[d] /= sum;
    }
  }
}

}  // namespace

void attend(const StepContext& context, const BoundTask& bound) { attention_split(context, bound, 0); }

void attention_tile(const StepContext& context, const BoundTask& bound) {
  int split = bound.task->split;
  for (const BoundRegion& output : bound.outputs) {
    if (output.active(context.position)) {
      attention_split(context, bound, split);
      store_f32(output.at(context.position), output.dtype, context.scratch.outputs);
    }
    split += context.program.attention.split_step;
  }
}

void combine_partials(const StepContext& context, const BoundTask& task, int kv_heads, std::span<float> out) {
  const ModelSpec& spec = context.program.model;
  const std::size_t hd = static_cast<std::size_t>(spec.head_dim), record = hd + kPartialTail;
  const std::size_t heads = static_cast<std::size_t>(kv_heads) * static_cast<std::size_t>(spec.gqa());
  const auto partials = [&](const BoundRegion& region) {
    return load_f32(region.at(context.position), region.dtype, region.count, context.scratch.b);
  };
  for (std::size_t h = 0; h < heads; ++h) {
    float maximum = kNothing, sum = 0.0f;
    for (const BoundRegion& split : task.inputs) {
      if (!split.active(context.position)) continue;
      const float m = partials(split)[h * record + hd];
      if (!(m <= maximum)) maximum = m;
    }
    const std::span<float> head = out.subspan(h * hd, hd);
    std::fill(head.begin(), head.end(), 0.0f);
    for (const BoundRegion& split : task.inputs) {
      if (!split.active(context.position)) continue;
      const auto values = partials(split).subspan(h * record, record);
      if (values[hd] == kNothing) continue;  // every key outside the window: exp(-inf - maximum) is 0, and 0 · 0 adds nothing
      const float weight = std::exp(values[hd] - maximum);
      sum += weight * values[hd + 1];
      for (std::size_t d = 0; d < hd; ++d) head[d] += weight * values[d];
    }
    for (float& v : head) v /= sum;
  }
}

void attention_combine(const StepContext& context, const BoundTask& task) {
  auto& out = context.scratch.outputs;
  out.resize(static_cast<std::size_t>(task.outputs[0].count));
  combine_partials(context, task, task.task->row_end - task.task->row_begin, out);
  store_f32(task.outputs[0].at(context.position), task.outputs[0].dtype, out);
}

}  // namespace amk::vm
