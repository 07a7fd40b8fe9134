// Takes a task's regions in the order that lower.h fixes. The first mismatch is kept; later takes do nothing. Internal to reference_vm_bind*.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/program/packing.h"
#include "core/reference/reference_vm_bind.h"

namespace amk::vm {

class Binder {
 public:
  Binder(const Program& program, TaskId id, Memory& memory, const WeightBuffers& weights)
      : program_(program), spec_(program.model), id_(id), task_(program.tasks[static_cast<std::size_t>(id)]), memory_(memory), weights_(weights) {}

  Result<std::vector<BoundTask>> bind();

 private:
  void sequence();
  // By opcode (reference_vm_bind_ops.cpp, reference_vm_bind_gemv.cpp).
  void embed();
  void rms_norm();
  void gemv();
  void rope();
  void kv_append();
  void attention();
  void attention_o();
  void combine();
  void silu_mul();
  void add();
  void argmax_partial();
  void argmax();
  // Their parts.
  void rope_operands();
  void kv_head(std::int64_t group);
  void gemv_outputs();
  RowTarget target_of(const std::vector<BoundRegion>& regions, const LogicalRow& logical, bool pairs, bool rotates);
  std::int64_t sums() const;
  bool writes_k() const;
  std::int64_t partial_floats() const { return std::int64_t{spec_.gqa()} * (spec_.head_dim + kPartialTail); }

  void refuse(const std::string& why);
  void need(bool condition, const char* why);
  // Rows [low, high) of the task must lie within [0, limit).
  std::int64_t rows(std::int64_t limit);
  void starts_at(const BoundRegion& region, std::int64_t first);

  // The next of the task's reads or writes.
  BoundRegion read(const char* what, std::int64_t count);
  BoundRegion read_ints(const char* what, std::int64_t count);
  BoundRegion read_vector_weight(const char* what, std::int64_t first, std::int64_t count);
  BoundRegion write(const char* what, std::int64_t count);
  BoundRegion write_ints(const char* what, std::int64_t count);
  BoundRegion vector(BoundRegion region);
  BoundRegion ints(BoundRegion region);
  // What all sequences share is listed with the first; `weight`: shared, and in weight space.
  BoundRegion take_shared(const char* what, std::int64_t count, bool weight);
  BoundRegion take(const std::vector<Region>& regions, std::size_t& next, const char* what, std::int64_t count);
  BoundRegion take_any(const std::vector<Region>& regions, std::size_t& next, const char* what, std::int64_t count, bool weight, bool shared);
  // Within the slice of `seq_`: `first` counts from its begin.
  Result<BoundRegion> bind_slice(const Region& region);

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

bool is_vector_dtype(DType t);

}  // namespace amk::vm
