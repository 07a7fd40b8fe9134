#include "core/reference/reference_vm_bind.h"

#include <utility>

#include "core/reference/reference_vm_binder.h"

namespace amk::vm {

bool is_vector_dtype(DType t) { return t == DType::F32 || t == DType::F16 || t == DType::BF16; }

Result<std::vector<BoundTask>> Binder::bind() {
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

void Binder::refuse(const std::string& why) {
  if (error_) return;
  const std::string name = task_name(program_, id_);
  error_ = Error{ErrorKind::InvalidArgument, "task " + name + ": " + why, {{"field", name}, {"task", name}}};
}

void Binder::need(bool condition, const char* why) {
  if (!condition) refuse(why);
}

Result<BoundRegion> Binder::bind_slice(const Region& region) {
  AMK_TRY(bound, memory_.bind(program_, region));
  const Buffer& buffer = program_.buffers[static_cast<std::size_t>(region.buffer)];
  const std::int64_t slice = buffer.bytes / dtype_bytes(buffer.dtype) / program_.batch;
  bound.first -= seq_ * slice;
  if (bound.first < 0 || bound.first + bound.count > slice)
    return fail(ErrorKind::InvalidArgument, "region of " + buffer.name + " is not of sequence " + std::to_string(seq_), {{"field", buffer.name}});
  return bound;
}

BoundRegion Binder::take_shared(const char* what, std::int64_t count, bool weight) {
  if (seq_ > 0) return error_ ? BoundRegion{} : shared_.at(next_shared_++);
  shared_.push_back(take_any(task_.reads, next_read_, what, count, weight, true));
  return shared_.back();
}

BoundRegion Binder::take(const std::vector<Region>& regions, std::size_t& next, const char* what, std::int64_t count) {
  return take_any(regions, next, what, count, false, false);
}

BoundRegion Binder::take_any(const std::vector<Region>& regions, std::size_t& next, const char* what, std::int64_t count, bool weight, bool shared) {
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

// A vector's elements are numbers, an index is an integer.
BoundRegion Binder::vector(BoundRegion region) {
  need(error_ || is_vector_dtype(region.dtype), "a vector's elements are integers");
  return region;
}

BoundRegion Binder::ints(BoundRegion region) {
  need(error_ || region.dtype == DType::I32, "an index is not int32");
  return region;
}

BoundRegion Binder::read(const char* what, std::int64_t count) { return vector(take(task_.reads, next_read_, what, count)); }
BoundRegion Binder::read_ints(const char* what, std::int64_t count) { return ints(take(task_.reads, next_read_, what, count)); }
BoundRegion Binder::write(const char* what, std::int64_t count) { return vector(take(task_.writes, next_write_, what, count)); }
BoundRegion Binder::write_ints(const char* what, std::int64_t count) { return ints(take(task_.writes, next_write_, what, count)); }

BoundRegion Binder::read_vector_weight(const char* what, std::int64_t first, std::int64_t count) {
  BoundRegion region = take_shared(what, count, true);
  if (error_) return region;
  need(region.first == first, "a weight vector's slice is not that of the task's rows");
  need(weights_[region.buffer].kind == WeightBuffer::Kind::Vector, "it reads a vector where there is a matrix");
  return region;
}

std::int64_t Binder::rows(std::int64_t limit) {
  need(task_.row_begin >= 0 && task_.row_begin < task_.row_end && task_.row_end <= limit, "its rows are outside the operator");
  return task_.row_end - task_.row_begin;
}

void Binder::starts_at(const BoundRegion& region, std::int64_t first) {
  need(error_ || region.first == first, "a slice does not start at the task's first row");
}

void Binder::sequence() {
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

Result<std::vector<BoundTask>> bind_task(const Program& program, TaskId id, Memory& memory, const WeightBuffers& weights) {
  return Binder(program, id, memory, weights).bind();
}

}  // namespace amk::vm
