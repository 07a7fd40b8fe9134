#include <algorithm>

#include "core/reference/reference_vm_binder.h"

namespace amk::vm {

void Binder::embed() {
  const std::int64_t n = rows(spec_.hidden);
  bound_.inputs.push_back(read_ints("the token", 1));
  bound_.weight = take_shared("the embedding table", std::int64_t{spec_.vocab} * spec_.hidden, true);
  need(error_ || weights_[bound_.weight.buffer].kind == WeightBuffer::Kind::Table, "it reads an embedding that is no table");
  bound_.outputs.push_back(write("the residual slice", n));
  if (!error_) starts_at(bound_.outputs[0], task_.row_begin);
}

void Binder::rms_norm() {
  const std::int64_t n = rows(spec_.hidden);
  bound_.inputs.push_back(read("the residual", spec_.hidden));
  bound_.norm = read_vector_weight("the norm weight", task_.row_begin, n);
  bound_.outputs.push_back(write("the normed slice", n));
  if (!error_) starts_at(bound_.outputs[0], task_.row_begin);
}

void Binder::rope_operands() {
  if (spec_.qk_norm) {
    bound_.q_norm = read_vector_weight("the q norm weight", 0, spec_.head_dim);
    bound_.k_norm = read_vector_weight("the k norm weight", 0, spec_.head_dim);
    bound_.has_head_norm = true;
  }
  bound_.rope = take_shared("the rope table", std::int64_t{program_.max_seq} * spec_.head_dim, false);
  need(error_ || (bound_.rope.dtype == DType::F32 && bound_.rope.first == 0), "the rope table is not a whole fp32 table");
}

void Binder::rope() {
  const std::int64_t n = rows(spec_.heads + spec_.kv_heads);
  if (error_) return;
  const std::int64_t hd = spec_.head_dim;
  const std::int64_t q_heads = std::max(0, std::min(task_.row_end, spec_.heads) - task_.row_begin);
  const std::int64_t k_heads = n - q_heads;
  if (q_heads > 0) bound_.inputs.push_back(read("the q slice", q_heads * hd));
  if (k_heads > 0) bound_.inputs.push_back(read("the k slice", k_heads * hd));
  if (!error_) starts_at(bound_.inputs[0], task_.row_begin * hd);
  if (!error_ && q_heads > 0 && k_heads > 0) starts_at(bound_.inputs[1], spec_.q_rows());
  rope_operands();
  if (q_heads > 0) bound_.outputs.push_back(write("the rotated q slice", q_heads * hd));
  if (k_heads > 0) bound_.outputs.push_back(write("the rotated k slice", k_heads * hd));
  if (!error_ && q_heads > 0) starts_at(bound_.outputs[0], task_.row_begin * hd);
  if (!error_ && k_heads > 0) starts_at(bound_.outputs.back(), (std::max(task_.row_begin, spec_.heads) - spec_.heads) * hd);
}

void Binder::kv_append() {
  const std::int64_t n = rows(spec_.kv_heads);
  if (error_) return;
  const std::int64_t hd = spec_.head_dim;
  bound_.inputs.push_back(read("the k slice", n * hd));
  bound_.inputs.push_back(read("the v slice", n * hd));
  if (!error_) starts_at(bound_.inputs[0], task_.row_begin * hd);
  if (!error_) starts_at(bound_.inputs[1], spec_.q_rows() + spec_.kv_rows() + task_.row_begin * hd);
  for (int cache = 0; cache < 2; ++cache)
    for (std::int32_t h = task_.row_begin; h < task_.row_end && !error_; ++h) {
      BoundRegion row = write("a cache row", hd);
      starts_at(row, std::int64_t{h} * program_.max_seq * hd);
      need(error_ || row.stride_bytes == hd * dtype_bytes(row.dtype), "a cache row does not move with the position");
      bound_.outputs.push_back(row);
    }
}

// What attention reads for a KV head: its group of queries, `group` elements, and the head's keys and values.
void Binder::kv_head(std::int64_t group) {
  const std::int64_t head = std::int64_t{program_.max_seq} * spec_.head_dim;
  bound_.inputs.push_back(read("the group's q", group));
  bound_.inputs.push_back(read("the K head", head));
  bound_.inputs.push_back(read("the V head", head));
  if (error_) return;
  starts_at(bound_.inputs[0], task_.head * group);
  starts_at(bound_.inputs[1], task_.head * head);
  starts_at(bound_.inputs[2], task_.head * head);
}

void Binder::attention() {
  need(task_.head >= 0 && task_.head < spec_.kv_heads, "it covers no head of the model");
  const std::int32_t step = program_.attention.split_step;
  need(task_.splits >= 1 && step >= 1 && task_.split >= 0 && task_.split < std::min(task_.splits, step), "its split is not one of its splits");
  need(program_.attention.kv_block > 0, "a KV block of no positions");
  if (error_) return;
  const std::int64_t group = std::int64_t{spec_.gqa()} * spec_.head_dim;
  kv_head(group);
  if (error_) return;
  if (task_.splits == 1) {
    bound_.outputs.push_back(write("the attention slice", group));
    starts_at(bound_.outputs[0], task_.head * group);
    return;
  }
  for (std::int32_t s = task_.split; s < task_.splits && !error_; s += step) {
    bound_.outputs.push_back(write("its partial", partial_floats()));
    starts_at(bound_.outputs.back(), (std::int64_t{s} * spec_.kv_heads + task_.head) * partial_floats());
  }
}

void Binder::attention_o() {
  const std::int64_t n = rows(spec_.hidden);
  need(task_.head >= 0 && task_.head < spec_.kv_heads, "it covers no head of the model");
  need(task_.splits == 1 && task_.split == 0 && program_.attention.splits == 1, "it takes a head's positions in splits");
  need(program_.attention.kv_block > 0, "a KV block of no positions");
  need(spec_.weight_format != WeightFormat::Int8, "its weights are int8");
  if (error_) return;
  const std::int64_t group = std::int64_t{spec_.gqa()} * spec_.head_dim;
  const std::int64_t cols = spec_.q_rows();
  kv_head(group);
  if (error_) return;
  for (std::int32_t r = task_.row_begin; r < task_.row_end && !error_; ++r) {
    const BoundRegion row = take_shared("its columns of a weight row", group, true);
    if (error_) return;
    need(program_.buffers[row.buffer].binding.matrix == Matrix::O && weights_[row.buffer].kind == WeightBuffer::Kind::Matrix,
         "its weights are not those of its matrix");
    starts_at(row, r * cols + task_.head * group);
    if (r == task_.row_begin) bound_.weight = row;
  }
  if (task_.head == 0) {
    if (spec_.o_bias) {
      bound_.bias = read_vector_weight("the bias", task_.row_begin, n);
      bound_.has_bias = true;
    }
    bound_.residuals.push_back(read("the residual slice", n));
    starts_at(bound_.residuals[0], task_.row_begin);
  }
  bound_.outputs.push_back(write("its slice of the head's sum", n));
  if (!error_) starts_at(bound_.outputs[0], std::int64_t{task_.head} * spec_.hidden + task_.row_begin);
}

void Binder::combine() {
  const std::int64_t n = rows(spec_.kv_heads);
  if (error_) return;
  for (int s = 0; s < program_.attention.splits && !error_; ++s) {
    bound_.inputs.push_back(read("a split's partials", n * partial_floats()));
    starts_at(bound_.inputs.back(), (std::int64_t{s} * spec_.kv_heads + task_.row_begin) * partial_floats());
  }
  bound_.outputs.push_back(write("the attention slice", n * spec_.gqa() * spec_.head_dim));
  if (!error_) starts_at(bound_.outputs[0], std::int64_t{task_.row_begin} * spec_.gqa() * spec_.head_dim);
}

void Binder::silu_mul() {
  const std::int64_t n = rows(spec_.intermediate);
  bound_.inputs.push_back(read("the gate slice", n));
  bound_.inputs.push_back(read("the up slice", n));
  bound_.outputs.push_back(write("the act slice", n));
  if (error_) return;
  starts_at(bound_.inputs[0], task_.row_begin);
  starts_at(bound_.inputs[1], std::int64_t{spec_.intermediate} + task_.row_begin);
  starts_at(bound_.outputs[0], task_.row_begin);
}

void Binder::add() {
  const std::int64_t n = rows(spec_.hidden);
  bound_.inputs.push_back(read("the residual slice", n));
  bound_.inputs.push_back(read("the delta slice", n));
  bound_.outputs.push_back(write("the new residual slice", n));
  if (error_) return;
  for (const BoundRegion& region : bound_.inputs) starts_at(region, task_.row_begin);
  starts_at(bound_.outputs[0], task_.row_begin);
}

void Binder::argmax_partial() {
  const std::int64_t n = rows(spec_.vocab);
  bound_.inputs.push_back(read("the logits slice", n));
  bound_.outputs.push_back(write_ints("its argmax partial", kArgmaxWords));
  if (error_) return;
  starts_at(bound_.inputs[0], task_.row_begin);
  starts_at(bound_.outputs[0], std::int64_t{task_.partial} * kArgmaxWords);
}

void Binder::argmax() {
  if (task_.reads.empty()) return refuse("no region for the argmax partials");
  auto region = bind_slice(task_.reads[0]);
  if (!region) return refuse(region.error().message);
  need(region->count > 0 && region->count % kArgmaxWords == 0, "its partials are not pairs");
  bound_.inputs.push_back(read_ints("the argmax partials", region->count));
  bound_.outputs.push_back(write_ints("the next token", 1));
}

}  // namespace amk::vm
