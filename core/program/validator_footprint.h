// Are a task's regions what its opcode touches? The rest of the validator takes regions at their word; virtual machines compute with rows, heads and
// splits. This pass derives from the model's dimensions what each opcode reads and writes (lower.h has the lists) and compares: bytes, element types,
// and what the buffer holds, so that a read takes what the model's arithmetic has in this place and not another vector of the same size. Internal to
// core/program.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/program/validator_access.h"
#include "core/program/validator_report.h"
#include "core/program/validator_values.h"

namespace amk::validation {

// "footprint"; "unwritten-output" for vectors of which nobody writes a part. The program passed check_structure.
Verdict check_footprints(const Program& program);

// Elements [first, first + count) of a buffer.
struct Slice {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

class FootprintChecker {
 public:
  explicit FootprintChecker(const Program& program);
  Verdict check_model() const;
  Verdict check(TaskId id);
  // After all tasks: what none of them shows alone.
  Verdict check_whole() const;

 private:
  BufferId shares_bytes(BufferId id) const;  // another buffer that does; kNone: none
  enum class Elements { Float, Float32, Int8, Int32 };
  // What the buffer of a region must be: its space, element type and size; and which weights. `total` and `slice` are of one sequence: a buffer has
  // one such slice for each.
  struct Expected {
    std::string_view what;
    Value value;
    Space space = Space::Activation;
    Elements elements = Elements::Float;
    std::int64_t total = 0;
    Slice slice;
    std::int64_t stride = 0;  // elements a position
    std::int64_t pos_lo = 0;  // touched at positions [pos_lo, max_seq)
  };

  // validator_footprint.cpp
  void of_sequence();  // `seq_`'s part of what the task touches; with the first one also what all share
  void embed();
  void rms_norm();
  void rope();
  void kv_append();
  void attention_tile();
  void attention_o();
  void attention_combine();
  void silu_mul();
  void add();
  void argmax_partial();
  void argmax();
  // validator_footprint_gemv.cpp
  void gemv();
  void gemv_inputs(std::int64_t cols);
  void gemv_outputs();
  void qkv_outputs();
  static DType dtype_of(Elements elements);  // not Float, which may be any of three
  // validator_footprint_regions.cpp
  void refuse(std::string why, const Region* region = nullptr);
  bool refused() const { return problem_.has_value(); }
  bool rows_within(std::int64_t limit);
  const Region* take(bool reads, const Expected& expected);  // of `seq_`'s slice
  const Region* take_shared(const Expected& expected);       // null for all but the first sequence
  const Region* take_one(const std::vector<Region>& list, std::size_t& next, const Expected& expected, bool reads);
  void match(const Region& region, const Expected& expected, bool reads);
  bool holds(const Region& region, const Expected& expected);
  bool in_format(const Region& region, const Expected& expected);
  void weight(std::string_view what, WeightBinding binding, std::int64_t total, Slice slice, Elements elements = Elements::Float);
  // An activation.
  void vector(bool reads, std::string_view what, Holds holds, std::int64_t total, Slice slice);
  void residual(bool reads, std::string_view what, std::int32_t number, std::int64_t total, Slice slice);
  void normed_input(Matrix matrix, std::int64_t total);
  void projected(Matrix matrix, Slice slice);
  void head_norms();
  void rope_table();
  void partials(std::int32_t first_head, std::int32_t heads);
  std::int64_t sums() const;  // vectors that the next read's residual is the sum of
  void cache(bool reads, bool keys, const Expected& expected);
  void cache_rows(bool keys, std::int64_t first, std::int64_t end);  // of all kv heads, at the launch position
  std::int32_t layer() const { return task_->layer; }
  std::int32_t before_attention() const { return 2 * layer(); }  // numbers of residuals
  std::int32_t before_mlp() const { return 2 * layer() + 1; }
  std::int32_t after_layer() const { return 2 * layer() + 2; }
  std::int32_t after_layers() const { return 2 * spec_.layers; }
  bool named(const Region& region, Value value) const { return p_.buffers[static_cast<std::size_t>(region.buffer)].name == name_of(value); }
  std::int64_t record() const;  // elements of one attention partial

  const Program& p_;
  const ModelSpec& spec_;
  const Task* task_ = nullptr;
  TaskId id_ = kNone;
  std::int64_t seq_ = 0;
  std::size_t next_read_ = 0;
  std::size_t next_write_ = 0;
  std::optional<Finding> problem_;
  std::vector<Value> values_;  // [buffer], once a task has touched it
  // The first element type of a kind is that of all: kernels are compiled for one.
  std::optional<DType> weights_, activations_, caches_;
  std::vector<std::pair<std::int32_t, std::int32_t>> argmax_rows_;  // of ArgmaxPartial's tasks: their partials do not say which
};

}  // namespace amk::validation
