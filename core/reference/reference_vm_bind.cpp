#include "core/reference/reference_vm_bind.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/program/packing.h"

namespace amk::vm {
namespace {

bool is_vector_dtype(DType t) { return t == DType::F32 || t == DType::F16 || t == DType::BF16; }

// Takes a task's regions in the order that lower.h fixes. The first mismatch is kept; later takes do nothing.
class Binder {
 public:
  Binder(const Program& program, TaskId id, Memory& memory, const WeightBuffers& weights)
      : program_(program), spec_(program.model), id_(id), task_(program.tasks[static_cast<std::size_t>(id)]), memory_(memory), weights_(weights) {}

  Result<std::vector<BoundTask>> bind() {
    const bool alone = task_.op == Opcode::AttentionTile || task_.op == Opcode::Argmax;
    need(task_.seq >= 0 && task_.seq < (alone ? program_.batch : 1), "it is of no sequence of the batch");
    const std::int32_t end = alone ? task_.seq + 1 : program_.batch;
    std::vector<BoundTask> all;
    for (seq_ = task_.seq; !error_ && seq_ < end; ++seq_) {
      bound_ = {};
      bound_.task = &task_;
      bound_.seq = seq_;
      next_shared_ = 0;
      sequence();
      all.push_back(std::move(bound_));
    }
    if (!error_ && next_read_ != task_.reads.size()) refuse("it has more reads than its opcode takes");
    if (!error_ && next_write_ != task_.writes.size()) refuse("it has more writes than its opcode makes");
    if (error_) return tl::unexpected<Error>(std::move(*error_));
    return all;
  }

 private:
  void sequence() {
    switch (task_.op) {
      case Opcode::Embed:
        embed();
        break;
      case Opcode::RmsNorm:
        rms_norm();
        break;
      case Opcode::Gemv:
        gemv();
        break;
      case Opcode::Rope:
        rope();
        break;
      case Opcode::KvAppend:
        kv_append();
        break;
      case Opcode::AttentionTile:
        attention();
        break;
      case Opcode::AttentionCombine:
        combine();
        break;
      case Opcode::SiluMul:
        silu_mul();
        break;
      case Opcode::Add:
        add();
        break;
      case Opcode::ArgmaxPartial:
        argmax_partial();
        break;
      case Opcode::Argmax:
        argmax();
        break;
      case Opcode::AttentionO:
        attention_o();
        break;
    }
  }

  void refuse(const std::string& why) {
    if (error_) return;
    const std::string name = task_name(program_, id_);
    error_ = Error{ErrorKind::InvalidArgument, "task " + name + ": " + why, {{"field", name}, {"task", name}}};
  }
  void need(bool condition, const char* why) {
    if (!condition) refuse(why);
  }

  // Within the slice of `seq_`: `first` counts from its begin.
  Result<BoundRegion> bind_slice(const Region& region) {
    AMK_TRY(bound, memory_.bind(program_, region));
    const Buffer& buffer = program_.buffers[static_cast<std::size_t>(region.buffer)];
    const std::int64_t slice = buffer.bytes / dtype_bytes(buffer.dtype) / program_.batch;
    bound.first -= seq_ * slice;
    if (bound.first < 0 || bound.first + bound.count > slice)
      return fail(ErrorKind::InvalidArgument, "region of " + buffer.name + " is not of sequence " + std::to_string(seq_), {{"field", buffer.name}});
    return bound;
  }

  // What all sequences share is listed with the first; `weight`: shared, and in weight space.
  BoundRegion take_shared(const char* what, std::int64_t count, bool weight) {
    if (seq_ > 0) return error_ ? BoundRegion{} : shared_.at(next_shared_++);
    shared_.push_back(take_any(task_.reads, next_read_, what, count, weight, true));
    return shared_.back();
  }
  BoundRegion take(const std::vector<Region>& regions, std::size_t& next, const char* what, std::int64_t count) {
    return take_any(regions, next, what, count, false, false);
  }
  BoundRegion take_any(const std::vector<Region>& regions, std::size_t& next, const char* what, std::int64_t count, bool weight, bool shared) {
    if (error_) return {};
    if (next == regions.size()) {
      refuse(std::string("no region for ") + what);
      return {};
    }
    const Region& listed = regions[next++];
    auto region = shared ? memory_.bind(program_, listed) : bind_slice(listed);
    if (!region) {
      refuse(region.error().message);
      return {};
    }
    if ((program_.buffers[region->buffer].space == Space::Weight) != weight) refuse(std::string(what) + " lies in the wrong space");
    if (region->count != count)
      refuse(std::string(what) + " has " + std::to_string(region->count) + " elements; its opcode takes " + std::to_string(count));
    return *region;
  }
  BoundRegion read(const char* what, std::int64_t count) {
    BoundRegion region = take(task_.reads, next_read_, what, count);
    need(error_ || is_vector_dtype(region.dtype), "a vector's elements are integers");
    return region;
  }
  BoundRegion read_ints(const char* what, std::int64_t count) {
    BoundRegion region = take(task_.reads, next_read_, what, count);
    need(error_ || region.dtype == DType::I32, "an index is not int32");
    return region;
  }
  BoundRegion read_vector_weight(const char* what, std::int64_t first, std::int64_t count) {
    BoundRegion region = take_shared(what, count, true);
    if (error_) return region;
    need(region.first == first, "a weight vector's slice is not that of the task's rows");
    need(weights_[region.buffer].kind == WeightBuffer::Kind::Vector, "it reads a vector where there is a matrix");
    return region;
  }
  BoundRegion write(const char* what, std::int64_t count) {
    BoundRegion region = take(task_.writes, next_write_, what, count);
    need(error_ || is_vector_dtype(region.dtype), "a vector's elements are integers");
    return region;
  }
  BoundRegion write_ints(const char* what, std::int64_t count) {
    BoundRegion region = take(task_.writes, next_write_, what, count);
    need(error_ || region.dtype == DType::I32, "an index is not int32");
    return region;
  }
  // Rows [low, high) of the task must lie within [0, limit).
  std::int64_t rows(std::int64_t limit) {
    need(task_.row_begin >= 0 && task_.row_begin < task_.row_end && task_.row_end <= limit, "its rows are outside the operator");
    return task_.row_end - task_.row_begin;
  }
  void starts_at(const BoundRegion& region, std::int64_t first) {
    need(error_ || region.first == first, "a slice does not start at the task's first row");
  }
  bool qk_norm() const { return spec_.qk_norm; }
  std::int64_t partial_floats() const { return std::int64_t{spec_.gqa()} * (spec_.head_dim + kPartialTail); }

  void embed() {
    const std::int64_t n = rows(spec_.hidden);
    bound_.inputs.push_back(read_ints("the token", 1));
    bound_.weight = take_shared("the embedding table", std::int64_t{spec_.vocab} * spec_.hidden, true);
    need(error_ || weights_[bound_.weight.buffer].kind == WeightBuffer::Kind::Table, "it reads an embedding that is no table");
    bound_.outputs.push_back(write("the residual slice", n));
    if (!error_) starts_at(bound_.outputs[0], task_.row_begin);
  }

  void rms_norm() {
    const std::int64_t n = rows(spec_.hidden);
    bound_.inputs.push_back(read("the residual", spec_.hidden));
    bound_.norm = read_vector_weight("the norm weight", task_.row_begin, n);
    bound_.outputs.push_back(write("the normed slice", n));
    if (!error_) starts_at(bound_.outputs[0], task_.row_begin);
  }

  void gemv() {
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
    if (has_bias()) {
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
  std::int64_t sums() const {
    if (next_read_ >= task_.reads.size()) return 1;
    const BufferId id = task_.reads[next_read_].buffer;
    if (id < 0 || static_cast<std::size_t>(id) >= program_.buffers.size()) return 1;
    const Buffer& buffer = program_.buffers[static_cast<std::size_t>(id)];
    const std::int64_t whole = program_.batch * std::int64_t{spec_.kv_heads} * spec_.hidden * dtype_bytes(DType::F32);
    return buffer.dtype == DType::F32 && buffer.bytes == whole ? spec_.kv_heads : 1;
  }

  bool has_bias() const {
    switch (task_.matrix) {
      case Matrix::Qkv:
        return spec_.qkv_bias;
      case Matrix::O:
        return spec_.o_bias;
      case Matrix::GateUp:
      case Matrix::Down:
        return spec_.mlp_bias;
      default:
        return false;
    }
  }

  void rope_operands() {
    if (qk_norm()) {
      bound_.q_norm = read_vector_weight("the q norm weight", 0, spec_.head_dim);
      bound_.k_norm = read_vector_weight("the k norm weight", 0, spec_.head_dim);
      bound_.has_head_norm = true;
    }
    bound_.rope = take_shared("the rope table", std::int64_t{program_.max_seq} * spec_.head_dim, false);
    need(error_ || (bound_.rope.dtype == DType::F32 && bound_.rope.first == 0), "the rope table is not a whole fp32 table");
  }

  void gemv_outputs() {
    const bool pairs = task_.matrix == Matrix::GateUp && (task_.fused & kFusedSiluMul);
    const bool rotates = task_.matrix == Matrix::Qkv && (task_.fused & kFusedRopeAppend);
    const std::int32_t unit = pairs || rotates ? kRowUnit : 1;
    need(task_.row_begin % unit == 0 && (task_.row_end % unit == 0), "its rows cut a pair unit");
    if (rotates && qk_norm()) {
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

  RowTarget target_of(const std::vector<BoundRegion>& regions, const LogicalRow& logical, bool pairs, bool rotates) {
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
  bool writes_k() const { return task_.row_begin < spec_.q_rows() + spec_.kv_rows() && task_.row_end > spec_.q_rows(); }

  void rope() {
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

  void kv_append() {
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

  void attention() {
    need(task_.head >= 0 && task_.head < spec_.kv_heads, "it covers no head of the model");
    const std::int32_t step = program_.attention.split_step;
    need(task_.splits >= 1 && step >= 1 && task_.split >= 0 && task_.split < std::min(task_.splits, step), "its split is not one of its splits");
    need(program_.attention.kv_block > 0, "a KV block of no positions");
    if (error_) return;
    const std::int64_t hd = spec_.head_dim, group = std::int64_t{spec_.gqa()} * hd, head = std::int64_t{program_.max_seq} * hd;
    bound_.inputs.push_back(read("the group's q", group));
    bound_.inputs.push_back(read("the K head", head));
    bound_.inputs.push_back(read("the V head", head));
    if (error_) return;
    starts_at(bound_.inputs[0], task_.head * group);
    starts_at(bound_.inputs[1], task_.head * head);
    starts_at(bound_.inputs[2], task_.head * head);
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

  void attention_o() {
    const std::int64_t n = rows(spec_.hidden);
    need(task_.head >= 0 && task_.head < spec_.kv_heads, "it covers no head of the model");
    need(task_.splits == 1 && task_.split == 0 && program_.attention.splits == 1, "it takes a head's positions in splits");
    need(program_.attention.kv_block > 0, "a KV block of no positions");
    need(spec_.weight_format != WeightFormat::Int8, "its weights are int8");
    if (error_) return;
    const std::int64_t group = std::int64_t{spec_.gqa()} * spec_.head_dim, head = std::int64_t{program_.max_seq} * spec_.head_dim;
    const std::int64_t cols = spec_.q_rows();
    bound_.inputs.push_back(read("the group's q", group));
    bound_.inputs.push_back(read("the K head", head));
    bound_.inputs.push_back(read("the V head", head));
    if (error_) return;
    starts_at(bound_.inputs[0], task_.head * group);
    starts_at(bound_.inputs[1], task_.head * head);
    starts_at(bound_.inputs[2], task_.head * head);
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

  void combine() {
    const std::int64_t n = rows(spec_.kv_heads);
    if (error_) return;
    for (int s = 0; s < program_.attention.splits && !error_; ++s) {
      bound_.inputs.push_back(read("a split's partials", n * partial_floats()));
      starts_at(bound_.inputs.back(), (std::int64_t{s} * spec_.kv_heads + task_.row_begin) * partial_floats());
    }
    bound_.outputs.push_back(write("the attention slice", n * spec_.gqa() * spec_.head_dim));
    if (!error_) starts_at(bound_.outputs[0], std::int64_t{task_.row_begin} * spec_.gqa() * spec_.head_dim);
  }

  void silu_mul() {
    const std::int64_t n = rows(spec_.intermediate);
    bound_.inputs.push_back(read("the gate slice", n));
    bound_.inputs.push_back(read("the up slice", n));
    bound_.outputs.push_back(write("the act slice", n));
    if (error_) return;
    starts_at(bound_.inputs[0], task_.row_begin);
    starts_at(bound_.inputs[1], std::int64_t{spec_.intermediate} + task_.row_begin);
    starts_at(bound_.outputs[0], task_.row_begin);
  }

  void add() {
    const std::int64_t n = rows(spec_.hidden);
    bound_.inputs.push_back(read("the residual slice", n));
    bound_.inputs.push_back(read("the delta slice", n));
    bound_.outputs.push_back(write("the new residual slice", n));
    if (error_) return;
    for (const BoundRegion& region : bound_.inputs) starts_at(region, task_.row_begin);
    starts_at(bound_.outputs[0], task_.row_begin);
  }

  void argmax_partial() {
    const std::int64_t n = rows(spec_.vocab);
    bound_.inputs.push_back(read("the logits slice", n));
    bound_.outputs.push_back(write_ints("its argmax partial", kArgmaxWords));
    if (error_) return;
    starts_at(bound_.inputs[0], task_.row_begin);
    starts_at(bound_.outputs[0], std::int64_t{task_.partial} * kArgmaxWords);
  }

  void argmax() {
    if (task_.reads.empty()) return refuse("no region for the argmax partials");
    auto region = bind_slice(task_.reads[0]);
    if (!region) return refuse(region.error().message);
    need(region->count > 0 && region->count % kArgmaxWords == 0, "its partials are not pairs");
    bound_.inputs.push_back(read_ints("the argmax partials", region->count));
    bound_.outputs.push_back(write_ints("the next token", 1));
  }

  const Program& program_;
  const ModelSpec& spec_;
  const TaskId id_;
  const Task& task_;
  Memory& memory_;
  const WeightBuffers& weights_;
  BoundTask bound_;
  std::int32_t seq_ = 0;
  std::vector<BoundRegion> shared_;  // in the order in which the first sequence took them
  std::size_t next_read_ = 0, next_write_ = 0, next_shared_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<std::vector<BoundTask>> bind_task(const Program& program, TaskId id, Memory& memory, const WeightBuffers& weights) {
  return Binder(program, id, memory, weights).bind();
}

}  // namespace amk::vm
