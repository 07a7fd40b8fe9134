#include "core/program/validator_footprint.h"

#include <algorithm>
#include <limits>

#include "core/program/packing.h"

namespace amk::validation {

FootprintChecker::FootprintChecker(const Program& program) : p_(program), spec_(program.model), values_(program.buffers.size()) {}

Verdict FootprintChecker::check_model() const {
  Finding finding;
  finding.rule = "footprint";
  if (const Status packable = check_packable(spec_); !packable)
    finding.message = cat("the program's model: ", packable.error().message);
  else if (spec_.layers > std::numeric_limits<std::int16_t>::max())  // what a task can name
    finding.message = cat("the program's model has ", spec_.layers, " layers");
  else if (p_.max_seq > spec_.max_position)
    finding.message = cat("max_seq is ", p_.max_seq, "; the model has ", spec_.max_position, " positions");
  else if (p_.batch < 1 || p_.batch > kMaxBatch)
    finding.message = cat("a batch of ", p_.batch, " sequences; accepted: 1 to ", kMaxBatch);
  else if (p_.attention.split_step < 1 || p_.attention.split_step > p_.attention.splits)
    finding.message = cat("attention tasks take every ", p_.attention.split_step, "th of ", p_.attention.splits, " splits");
  else if (p_.attention.splits < 1 || p_.attention.kv_block < 1 || std::int64_t{p_.attention.splits - 1} * p_.attention.kv_block >= p_.max_seq)
    finding.message = cat("attention in ", p_.attention.splits, " splits of blocks of ", p_.attention.kv_block,
                          " positions: some have no block below ", p_.max_seq);
  else
    return {};
  return reject(p_, std::move(finding));
}

Verdict FootprintChecker::check(TaskId id) {
  task_ = &p_.tasks[static_cast<std::size_t>(id)];
  id_ = id;
  next_read_ = next_write_ = 0;
  const Instruction& instruction = p_.instructions[static_cast<std::size_t>(task_->instruction)];
  if (instruction.op != task_->op || instruction.layer != task_->layer || instruction.matrix != task_->matrix || instruction.fused != task_->fused)
    refuse(cat("it is not what its instruction ", instruction.name, " is"));
  const bool outside = task_->op == Opcode::Embed || task_->op == Opcode::ArgmaxPartial || task_->op == Opcode::Argmax ||
                       task_->matrix == Matrix::LmHead || (task_->op == Opcode::RmsNorm && task_->layer < 0);
  if (outside ? task_->layer != -1 : task_->layer < 0 || task_->layer >= spec_.layers) refuse(cat("layer ", task_->layer, " of ", spec_.layers));
  const bool plain = task_->matrix == (task_->op == Opcode::AttentionO ? Matrix::O : Matrix::None) && task_->fused == 0;
  if (task_->op != Opcode::Gemv && !plain) refuse("a matrix or fused flags on what is no Gemv");
  const bool alone = task_->op == Opcode::AttentionTile || task_->op == Opcode::Argmax;
  if (task_->seq < 0 || task_->seq >= (alone ? p_.batch : 1)) refuse(cat("sequence ", task_->seq, " of ", alone ? p_.batch : 1));
  if (!problem_) {
    const std::int64_t first = task_->seq, end = alone ? first + 1 : p_.batch;
    for (seq_ = first; seq_ < end && !problem_; ++seq_) of_sequence();
    if (next_read_ != task_->reads.size()) refuse("more reads than its opcode makes");
    if (next_write_ != task_->writes.size()) refuse("more writes than its opcode makes");
    if (task_->ring_bytes != 0 && task_->op != Opcode::Gemv && task_->op != Opcode::AttentionTile)
      refuse("ring bytes for what reads neither weights nor the cache");
  }
  if (!problem_) return {};
  return reject(p_, std::move(*problem_));
}

void FootprintChecker::of_sequence() {
  switch (task_->op) {
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
      attention_tile();
      break;
    case Opcode::AttentionCombine:
      attention_combine();
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

void FootprintChecker::embed() {
  if (!rows_within(spec_.hidden)) return;
  const std::int64_t table = std::int64_t{spec_.vocab} * spec_.hidden;
  take(true, {"the token", {Holds::Token, 0}, Space::Input, Elements::Int32, 1, {0, 1}});
  weight("the embedding table", {Matrix::None, WeightKind::Embedding, 0, false}, table, {0, table});
  residual(false, "the residual slice", 0, spec_.hidden, {task_->row_begin, task_->row_end - task_->row_begin});
}

void FootprintChecker::rms_norm() {
  if (!rows_within(spec_.hidden)) return;
  const Slice rows{task_->row_begin, task_->row_end - task_->row_begin};
  // Before attention or before the MLP: what it writes says which.
  const bool before_the_mlp = layer() >= 0 && !task_->writes.empty() && named(task_->writes[0], {Holds::MlpNormed, layer()});
  const std::int32_t number = layer() < 0 ? after_layers() : before_the_mlp ? before_mlp() : before_attention();
  residual(true, "the residual", number, spec_.hidden, {0, spec_.hidden});
  const WeightKind kind = layer() < 0 ? WeightKind::FinalNorm : before_the_mlp ? WeightKind::MlpNorm : WeightKind::AttnNorm;
  weight("the norm weight", {Matrix::None, kind, layer(), false}, spec_.hidden, rows);
  vector(false, "the normed slice", layer() < 0 ? Holds::FinalNormed : before_the_mlp ? Holds::MlpNormed : Holds::AttnNormed, spec_.hidden, rows);
}

void FootprintChecker::rope() {
  if (!rows_within(spec_.heads + spec_.kv_heads)) return;
  const std::int64_t dim = spec_.head_dim;
  const std::int64_t q_end = std::min(task_->row_end, spec_.heads);
  const std::int64_t k_begin = std::max(task_->row_begin, spec_.heads);
  const Slice q{task_->row_begin * dim, (q_end - task_->row_begin) * dim};
  const Slice k{k_begin * dim, (task_->row_end - k_begin) * dim};
  const std::int64_t qkv = packed_rows(spec_, Matrix::Qkv);
  if (q.count > 0) vector(true, "the q slice", Holds::Qkv, qkv, q);
  if (k.count > 0) vector(true, "the k slice", Holds::Qkv, qkv, k);
  head_norms();
  rope_table();
  if (q.count > 0) vector(false, "the rotated q slice", Holds::Q, spec_.q_rows(), q);
  if (k.count > 0) vector(false, "the rotated k slice", Holds::K, spec_.kv_rows(), {k.first - spec_.q_rows(), k.count});
}

void FootprintChecker::kv_append() {
  if (!rows_within(spec_.kv_heads)) return;
  const std::int64_t dim = spec_.head_dim;
  const Slice slice{task_->row_begin * dim, (task_->row_end - task_->row_begin) * dim};
  vector(true, "the k slice", Holds::K, spec_.kv_rows(), slice);
  vector(true, "the v slice", Holds::Qkv, packed_rows(spec_, Matrix::Qkv), {spec_.q_rows() + spec_.kv_rows() + slice.first, slice.count});
  for (const bool keys : {true, false}) cache_rows(keys, slice.first, slice.first + slice.count);
}

void FootprintChecker::attention_tile() {
  const Task& t = *task_;
  if (t.head < 0 || t.head >= spec_.kv_heads) return refuse(cat("kv head ", t.head, " of ", spec_.kv_heads));
  if (t.splits != p_.attention.splits || t.split < 0 || t.split >= p_.attention.split_step)
    return refuse(cat("split ", t.split, " of ", t.splits, "; attention has ", p_.attention.splits, ", and tasks begin with the first ",
                      p_.attention.split_step));
  const std::int64_t from = std::int64_t{t.split} * p_.attention.kv_block;
  const std::int64_t group = std::int64_t{spec_.gqa()} * spec_.head_dim;
  const std::int64_t head = std::int64_t{p_.max_seq} * spec_.head_dim;
  take(true, {"the group's q", {Holds::Q, layer()}, Space::Activation, Elements::Float, spec_.q_rows(), {t.head * group, group}, 0, from});
  for (const bool keys : {true, false})
    cache(true, keys, {keys ? "the K head" : "the V head", {}, Space::Kv, Elements::Float, spec_.kv_heads * head, {t.head * head, head}, 0, from});
  if (t.splits == 1)
    take(false,
         {"the attention slice", {Holds::Attention, layer()}, Space::Activation, Elements::Float, spec_.q_rows(), {t.head * group, group}, 0, from});
  for (std::int64_t s = t.split; t.splits > 1 && s < t.splits && !problem_; s += p_.attention.split_step)
    take(false, {"its partial",
                 {Holds::Partials, layer()},
                 Space::Activation,
                 Elements::Float32,
                 std::int64_t{t.splits} * spec_.kv_heads * record(),
                 {(s * spec_.kv_heads + t.head) * record(), record()},
                 0,
                 s * p_.attention.kv_block});
}

// Its attention is over all positions: there are no splits.
void FootprintChecker::attention_o() {
  const Task& t = *task_;
  if (t.head < 0 || t.head >= spec_.kv_heads) return refuse(cat("kv head ", t.head, " of ", spec_.kv_heads));
  if (p_.attention.splits != 1 || t.split != 0 || t.splits != 1) return refuse(cat("split ", t.split, " of ", t.splits, ", where none is split"));
  if (!rows_within(spec_.hidden)) return;
  if (t.row_begin % kRowUnit != 0 || t.row_end % kRowUnit != 0) return refuse("its rows cut a packed unit of eight");
  const std::int64_t group = std::int64_t{spec_.gqa()} * spec_.head_dim, cols = spec_.q_rows(), sums = std::int64_t{spec_.kv_heads} * spec_.hidden;
  const std::int64_t head = std::int64_t{p_.max_seq} * spec_.head_dim;
  const Slice mine{t.row_begin, t.row_end - t.row_begin};
  vector(true, "the group's q", Holds::Q, cols, {t.head * group, group});
  for (const bool keys : {true, false})
    cache(true, keys, {keys ? "the K head" : "the V head", {}, Space::Kv, Elements::Float, spec_.kv_heads * head, {t.head * head, head}});
  for (std::int64_t r = t.row_begin; r < t.row_end && !problem_; ++r)
    weight("its columns of a weight row", {Matrix::O, WeightKind::Embedding, layer(), false}, spec_.hidden * cols,
           {r * cols + t.head * group, group});
  if (t.head == 0) {
    if (has_bias(spec_, task_->matrix)) weight("the bias rows", {Matrix::O, WeightKind::Embedding, layer(), true}, spec_.hidden, mine);
    residual(true, "the residual slice", before_attention(), spec_.hidden, mine);
  }
  residual(false, "its slice of the head's sum", before_mlp(), sums, {t.head * spec_.hidden + mine.first, mine.count});
}

void FootprintChecker::attention_combine() {
  if (!rows_within(spec_.kv_heads)) return;
  const std::int64_t group = std::int64_t{spec_.gqa()} * spec_.head_dim;
  partials(task_->row_begin, task_->row_end - task_->row_begin);
  vector(false, "the attention slice", Holds::Attention, spec_.q_rows(), {task_->row_begin * group, (task_->row_end - task_->row_begin) * group});
}

void FootprintChecker::silu_mul() {
  if (!rows_within(spec_.intermediate)) return;
  const Slice rows{task_->row_begin, task_->row_end - task_->row_begin};
  const std::int64_t both = std::int64_t{2} * spec_.intermediate;
  vector(true, "the gate slice", Holds::GateUp, both, rows);
  vector(true, "the up slice", Holds::GateUp, both, {spec_.intermediate + rows.first, rows.count});
  vector(false, "the act slice", Holds::Act, spec_.intermediate, rows);
}

void FootprintChecker::add() {
  if (!rows_within(spec_.hidden)) return;
  const Slice rows{task_->row_begin, task_->row_end - task_->row_begin};
  // Behind attention or behind the MLP: what it adds says which.
  const bool attention = task_->reads.size() > next_read_ + 1 && named(task_->reads[next_read_ + 1], {Holds::ODelta, layer()});
  residual(true, "the residual slice", attention ? before_attention() : before_mlp(), spec_.hidden, rows);
  vector(true, "the delta slice", attention ? Holds::ODelta : Holds::DownDelta, spec_.hidden, rows);
  residual(false, "the new residual slice", attention ? before_mlp() : after_layer(), spec_.hidden, rows);
}

void FootprintChecker::argmax_partial() {
  if (!rows_within(spec_.vocab)) return;
  if (seq_ == 0) argmax_rows_.emplace_back(task_->row_begin, task_->row_end);
  take(
      true,
      {"the logits slice", {Holds::Logits, 0}, Space::Output, Elements::Float32, spec_.vocab, {task_->row_begin, task_->row_end - task_->row_begin}});
  if (problem_ || next_write_ == task_->writes.size()) return refuse("no region for its argmax partial");
  const std::int64_t total = p_.buffers[static_cast<std::size_t>(task_->writes[next_write_].buffer)].bytes / p_.batch / dtype_bytes(DType::I32);
  take(false, {"its argmax partial",
               {Holds::ArgmaxPartials, 0},
               Space::Activation,
               Elements::Int32,
               total,
               {std::int64_t{task_->partial} * kArgmaxWords, kArgmaxWords}});
}

void FootprintChecker::argmax() {
  if (task_->reads.empty()) return refuse("no region for the argmax partials");
  const std::int64_t words = p_.buffers[static_cast<std::size_t>(task_->reads[0].buffer)].bytes / p_.batch / dtype_bytes(DType::I32);
  if (words % kArgmaxWords != 0 || task_->row_begin != 0 || task_->row_end != words / kArgmaxWords)
    return refuse(cat("it merges partials [", task_->row_begin, ",", task_->row_end, "), and there are ", words / kArgmaxWords), &task_->reads[0]);
  take(true, {"the argmax partials", {Holds::ArgmaxPartials, 0}, Space::Activation, Elements::Int32, words, {0, words}});
  const bool feeds_back = p_.step_sync == StepSync::Persistent;
  take(false,
       {"the next token", {feeds_back ? Holds::Token : Holds::NextToken, 0}, feeds_back ? Space::Input : Space::Output, Elements::Int32, 1, {0, 1}});
}

Verdict FootprintChecker::check_whole() const {
  Finding finding;
  finding.rule = "unwritten-output";
  // Partials of an argmax are written one each, whatever logits each looked at.
  std::vector<std::pair<std::int32_t, std::int32_t>> rows = argmax_rows_;
  std::sort(rows.begin(), rows.end());
  std::int32_t next = 0;
  for (const auto& [begin, end] : rows) {
    if (begin > next) break;
    next = std::max(next, end);
  }
  if (!rows.empty() && next != spec_.vocab) {
    finding.message = cat("no argmax partial looks at logits [", next, ",…) of ", spec_.vocab);
    return reject(p_, std::move(finding));
  }
  // Where all splits are awake. Bytes add up: who writes twice is refused elsewhere.
  std::vector<std::int64_t> written(p_.buffers.size(), 0);
  std::vector<char> read(p_.buffers.size(), 0);
  for (const Task& task : p_.tasks) {
    for (const Region& region : task.reads) read[static_cast<std::size_t>(region.buffer)] = 1;
    for (const Region& region : task.writes)
      if (const Positions when = positions_of(p_, task, region); when.hi == p_.max_seq && !when.empty())
        written[static_cast<std::size_t>(region.buffer)] += region.end - region.begin;
  }
  for (std::size_t b = 0; b < p_.buffers.size(); ++b) {
    const Buffer& buffer = p_.buffers[b];
    if (buffer.space != Space::Activation) continue;
    finding.buffer = static_cast<BufferId>(b);
    if (written[b] != buffer.bytes) {
      finding.message = cat(written[b], " bytes are written of ", buffer.name, ", which has ", buffer.bytes);
      return reject(p_, std::move(finding));
    }
    if (read[b] == 0)
      if (const BufferId other = shares_bytes(static_cast<BufferId>(b)); other != kNone) {
        finding.rule = "page-alias";
        finding.other_buffer = other;
        finding.message =
            cat(buffer.name, ", which no task reads, is for the host, and shares bytes with ", p_.buffers[static_cast<std::size_t>(other)].name);
        return reject(p_, std::move(finding));
      }
  }
  return {};
}

BufferId FootprintChecker::shares_bytes(BufferId id) const {
  const Buffer& mine = p_.buffers[static_cast<std::size_t>(id)];
  for (std::size_t b = 0; b < p_.buffers.size(); ++b) {
    const Buffer& other = p_.buffers[b];
    if (static_cast<BufferId>(b) != id && other.storage == mine.storage && other.offset < mine.offset + mine.bytes &&
        mine.offset < other.offset + other.bytes)
      return static_cast<BufferId>(b);
  }
  return kNone;
}

Verdict check_footprints(const Program& program) {
  FootprintChecker checker(program);
  if (Verdict v = checker.check_model()) return v;
  for (std::size_t id = 0; id < program.tasks.size(); ++id)
    if (Verdict v = checker.check(static_cast<TaskId>(id))) return v;
  return checker.check_whole();
}

}  // namespace amk::validation
