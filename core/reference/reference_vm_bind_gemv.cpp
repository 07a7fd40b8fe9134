#include <algorithm>

#include "core/program/packing.h"
#include "core/reference/reference_vm_binder.h"

namespace amk::vm {

void Binder::gemv() {
  const std::int64_t n = rows(packed_rows(spec_, task_.matrix));
  const std::int64_t cols = packed_cols(spec_, task_.matrix);
  need(task_.matrix != Matrix::None, "a Gemv of no matrix");
  if (error_) return;
  if (task_.fused & kFusedCombine) {
    for (int s = 0; s < program_.attention.splits; ++s) bound_.inputs.push_back(read("the attention partials", spec_.kv_heads * partial_floats()));
  } else {
    bound_.inputs.push_back(read("the input vector", cols * (task_.matrix == Matrix::GateUp && (task_.fused & kFusedNorm) ? sums() : 1)));
  }
  if (task_.fused & kFusedNorm) bound_.norm = read_vector_weight("the norm weight", 0, spec_.hidden);
  bound_.weight = take_shared("the weight rows", n * cols, true);
  if (error_) return;
  const WeightBuffer& matrix = weights_[bound_.weight.buffer];
  need(program_.buffers[bound_.weight.buffer].binding.matrix == task_.matrix && matrix.kind == WeightBuffer::Kind::Matrix,
       "its weights are not those of its matrix");
  starts_at(bound_.weight, task_.row_begin * cols);
  const bool int8 = spec_.weight_format == WeightFormat::Int8;
  need((bound_.weight.dtype == DType::I8) == int8, "its weights are not in its model's format");
  if (int8) {
    bound_.scale = read_vector_weight("the scales", task_.row_begin, n);
    need(error_ || (weights_[bound_.scale.buffer].scale && program_.buffers[bound_.scale.buffer].binding.matrix == task_.matrix),
         "its scales are not those of its matrix");
    bound_.has_scale = true;
  }
  if (has_bias(spec_, task_.matrix)) {
    bound_.bias = read_vector_weight("the bias", task_.row_begin, n);
    bound_.has_bias = true;
  }
  if (task_.fused & kFusedRopeAppend) rope_operands();
  if (task_.fused & kFusedResidualAdd) {
    const std::int64_t vectors = task_.matrix == Matrix::Down ? sums() : 1;
    for (std::int64_t v = 0; v < vectors && !error_; ++v) {
      bound_.residuals.push_back(read("the residual slice", n));
      starts_at(bound_.residuals.back(), v * spec_.hidden + task_.row_begin);
    }
  }
  gemv_outputs();
}

// Vectors that the residual which is read next is the sum of: one a kv head where AttentionO made it.
std::int64_t Binder::sums() const {
  if (next_read_ >= task_.reads.size()) return 1;
  const BufferId id = task_.reads[next_read_].buffer;
  if (id < 0 || static_cast<std::size_t>(id) >= program_.buffers.size()) return 1;
  const Buffer& buffer = program_.buffers[static_cast<std::size_t>(id)];
  const std::int64_t whole = program_.batch * std::int64_t{spec_.kv_heads} * spec_.hidden * dtype_bytes(DType::F32);
  return buffer.dtype == DType::F32 && buffer.bytes == whole ? spec_.kv_heads : 1;
}

void Binder::gemv_outputs() {
  const bool pairs = task_.matrix == Matrix::GateUp && (task_.fused & kFusedSiluMul);
  const bool rotates = task_.matrix == Matrix::Qkv && (task_.fused & kFusedRopeAppend);
  const std::int32_t unit = pairs || rotates ? kRowUnit : 1;
  need(task_.row_begin % unit == 0 && (task_.row_end % unit == 0), "its rows cut a pair unit");
  if (rotates && spec_.qk_norm) {
    const std::int32_t rotated = spec_.q_rows() + spec_.kv_rows();
    const auto whole_heads = [&](std::int32_t row) { return row >= rotated || row % spec_.head_dim == 0; };
    need(whole_heads(task_.row_begin) && whole_heads(task_.row_end), "its rows cut a head that is normed");
  }
  const bool argmax = task_.fused & kFusedArgmax;
  const std::size_t own = task_.writes.size() / static_cast<std::size_t>(program_.batch);
  const std::size_t slices = next_write_ + own - std::min<std::size_t>(argmax ? 1 : 0, own);
  std::vector<BoundRegion> regions;
  std::int64_t declared = 0, needed = 0;
  while (!error_ && next_write_ < slices) {
    auto region = bind_slice(task_.writes[next_write_++]);
    if (!region) return refuse(region.error().message);
    if (program_.buffers[region->buffer].space == Space::Weight || !is_vector_dtype(region->dtype)) return refuse("it writes what is no vector");
    declared += region->count;
    regions.push_back(*region);
  }
  if (argmax) {
    bound_.argmax = write_ints("its argmax partial", kArgmaxWords);
    starts_at(bound_.argmax, std::int64_t{task_.partial} * kArgmaxWords);
  }
  if (!error_) bound_.rows.reserve(static_cast<std::size_t>(task_.row_end - task_.row_begin));
  for (std::int32_t r = task_.row_begin; !error_ && r < task_.row_end; ++r) {
    const LogicalRow logical = logical_row(spec_, task_.matrix, r);
    if (pairs && logical.kind == WeightKind::Up) continue;
    bound_.rows.push_back(target_of(regions, logical, pairs, rotates));
    ++needed;
  }
  need(error_ || declared == needed, "its writes are not exactly its rows");
}

RowTarget Binder::target_of(const std::vector<BoundRegion>& regions, const LogicalRow& logical, bool pairs, bool rotates) {
  std::int64_t index = logical.row;
  bool cache = false, second_cache = false;
  if (task_.matrix == Matrix::Qkv && rotates && logical.kind != WeightKind::Q) {
    index = std::int64_t{logical.row / spec_.head_dim} * program_.max_seq * spec_.head_dim + logical.row % spec_.head_dim;
    cache = true;
    second_cache = logical.kind == WeightKind::V && writes_k();
  } else if (task_.matrix == Matrix::Qkv) {
    if (logical.kind == WeightKind::K) index += spec_.q_rows();
    if (logical.kind == WeightKind::V) index += spec_.q_rows() + spec_.kv_rows();
  } else if (logical.kind == WeightKind::Up && !pairs) {
    index += spec_.intermediate;
  }
  BufferId first_cache = kNone;
  for (const BoundRegion& region : regions) {
    const bool in_cache = program_.buffers[region.buffer].space == Space::Kv;
    if (in_cache && first_cache == kNone) first_cache = region.buffer;
    if (in_cache != cache || (cache && (region.buffer != first_cache) != second_cache)) continue;
    if (index < region.first || index >= region.first + region.count) continue;
    if (in_cache && region.stride_bytes != std::int64_t{spec_.head_dim} * dtype_bytes(region.dtype)) break;
    std::byte* const data = region.data == nullptr ? nullptr : region.data + (index - region.first) * dtype_bytes(region.dtype);
    return {data, static_cast<std::int32_t>(region.stride_bytes), region.dtype};
  }
  refuse("no write covers its row " + std::to_string(logical.row));
  return {};
}

bool Binder::writes_k() const { return task_.row_begin < spec_.q_rows() + spec_.kv_rows() && task_.row_end > spec_.q_rows(); }

}  // namespace amk::vm
