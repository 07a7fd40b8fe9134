#include "core/program/lower_plan.h"

#include <algorithm>

#include "core/program/packing.h"

namespace amk::lowering {
namespace {

struct Need {
  BufferId buffer = kNone;
  bool per_head = false;
};

class Builder {
 public:
  Builder(const ModelSpec& spec, const ScheduleConfig& config, const LoweringTarget& target, const NumericFormat& format)
      : spec_(spec), config_(config), target_(target), format_(format), n_tile_(config.gemv_n_tile) {
    const std::int32_t blocks = (target.max_seq + config.attention_kv_block - 1) / config.attention_kv_block;
    plan_.attention.kv_block = config.attention_kv_block;
    plan_.cache_in_ring = config.kernel.kv_path == KvPath::Ring;
    const std::int32_t most = config.attention_max_splits > 0 ? config.attention_max_splits : blocks;
    plan_.attention.splits = config.fusion.attention_combine ? 1 : std::min({blocks, most, std::max(1, target.sm_count / spec.kv_heads)});
    // A batch splits as one sequence does, so that each adds up as if it were alone; where the SMs do not suffice, a task takes several splits.
    plan_.attention.split_step =
        target.batch == 1 ? plan_.attention.splits : std::clamp(target.sm_count / (spec.kv_heads * target.batch), 1, plan_.attention.splits);
  }

  Plan build() {
    token_ = buffer("token", Space::Input, DType::I32, {target_.batch});
    rope_ = buffer("rope", Space::Const, DType::F32, {target_.max_seq, 2, spec_.head_dim / 2});
    BufferId x = embed();
    for (int layer = 0; layer < spec_.layers; ++layer) {
      layer_ = layer;
      prefix_ = "L" + std::to_string(layer) + ".";
      x = attention_block(x);
      x = mlp_block(x);
    }
    layer_ = -1;
    prefix_.clear();
    head(x);
    choose_groups();
    choose_waits();
    return std::move(plan_);
  }

 private:
  BufferId buffer(std::string name, Space space, DType dtype, std::vector<std::int64_t> shape, WeightBinding binding = {}) {
    Buffer b;
    b.name = std::move(name);
    b.space = space;
    b.dtype = dtype;
    b.bytes = dtype_bytes(dtype);
    for (std::int64_t n : shape) b.bytes *= n;
    b.shape = std::move(shape);
    b.binding = binding;
    plan_.buffers.push_back(std::move(b));
    plan_.producer.push_back(kNone);
    plan_.consumers.emplace_back();
    return static_cast<BufferId>(plan_.buffers.size() - 1);
  }
  // One slice a sequence.
  std::vector<std::int64_t> each(std::vector<std::int64_t> shape) const {
    if (target_.batch > 1) shape.insert(shape.begin(), target_.batch);
    return shape;
  }
  BufferId vector(const std::string& name, DType dtype, std::int64_t n) { return buffer(prefix_ + name, Space::Activation, dtype, each({n})); }
  BufferId vector_weight(const std::string& name, WeightKind kind, std::int64_t n) {
    return buffer(prefix_ + name, Space::Weight, format_.weights, {n}, {Matrix::None, kind, std::max(layer_, 0), false});
  }
  BufferId next_residual() { return buffer("x" + std::to_string(residuals_++), Space::Activation, DType::F32, each({spec_.hidden})); }

  // --- instructions -------------------------------------------------------------------------------------------------------------------------

  PlannedInstruction& add(std::string_view name, Opcode op, std::vector<Segment> segments, std::int64_t row_bytes,
                          Ledger ledger = Ledger::Elementwise) {
    PlannedInstruction in;
    in.info.name = prefix_ + std::string(name);
    in.info.op = op;
    in.info.layer = static_cast<std::int16_t>(layer_);
    for (const Segment& s : segments) in.info.tiles += s.tiles();
    in.segments = std::move(segments);
    in.row_bytes = row_bytes;
    in.ledger = ledger;
    plan_.instructions.push_back(std::move(in));
    needs_.emplace_back();
    return plan_.instructions.back();
  }
  InstructionId last() const { return static_cast<InstructionId>(plan_.instructions.size() - 1); }
  BufferId reads(BufferId b, bool per_head = false) {
    needs_.back().push_back({b, per_head});
    auto& consumers = plan_.consumers[static_cast<std::size_t>(b)];
    if (consumers.empty() || consumers.back() != last()) consumers.push_back(last());
    return b;
  }
  BufferId writes(BufferId b) {
    plan_.producer[static_cast<std::size_t>(b)] = last();
    return b;
  }
  std::vector<Segment> rows(std::int32_t n) const { return {{0, n, n_tile_}}; }
  std::vector<Segment> heads(std::int32_t n, std::int32_t rows_per_head) const { return {{0, n, std::max(1, n_tile_ / rows_per_head)}}; }

  BufferId embed() {
    const BufferId table = vector_weight("embedding", WeightKind::Embedding, std::int64_t{spec_.vocab} * spec_.hidden);
    plan_.buffers[static_cast<std::size_t>(table)].shape = {spec_.vocab, spec_.hidden};
    const BufferId x = next_residual();
    PlannedInstruction& in = add("embed", Opcode::Embed, rows(spec_.hidden), dtype_bytes(DType::F32));
    in.input = reads(token_);
    in.weight = table;
    in.output = writes(x);
    return x;
  }

  BufferId rms_norm(const std::string& name, BufferId x, BufferId weight) {
    const BufferId normed = vector(name + ".out", format_.activations, spec_.hidden);
    PlannedInstruction& in = add(name, Opcode::RmsNorm, rows(spec_.hidden), dtype_bytes(DType::F32));
    in.input = reads(x);
    in.norm_weight = weight;
    in.output = writes(normed);
    return normed;
  }

  BufferId add_residual(const std::string& name, BufferId x, BufferId delta) {
    const BufferId sum = next_residual();
    PlannedInstruction& in = add(name, Opcode::Add, rows(spec_.hidden), dtype_bytes(DType::F32));
    in.residual = reads(x);
    in.input = reads(delta);
    in.output = writes(sum);
    return sum;
  }

  PlannedInstruction& gemv(const std::string& name, Matrix matrix, std::uint32_t fused, std::vector<Segment> segments) {
    const std::int64_t n = packed_rows(spec_, matrix);
    const std::int64_t cols = packed_cols(spec_, matrix);
    const int layer = std::max(layer_, 0);
    const bool int8 = spec_.weight_format == WeightFormat::Int8;
    const DType stored = int8 ? DType::I8 : format_.weights;
    const BufferId weight = buffer(prefix_ + name + ".w", Space::Weight, stored, {n, cols}, {matrix, WeightKind::Embedding, layer, false});
    const BufferId scale =
        int8 ? buffer(prefix_ + name + ".scale", Space::Weight, DType::F32, {n}, {matrix, WeightKind::Embedding, layer, false, true}) : kNone;
    const BufferId bias = has_bias(spec_, matrix)
                              ? buffer(prefix_ + name + ".bias", Space::Weight, format_.weights, {n}, {matrix, WeightKind::Embedding, layer, true})
                              : kNone;
    PlannedInstruction& in = add(name, Opcode::Gemv, std::move(segments), cols * dtype_bytes(stored), Ledger::Weights);
    in.info.matrix = matrix;
    in.info.fused = fused;
    in.weight = weight;
    in.scale = scale;
    in.bias = bias;
    return in;
  }

  // Norm, then the projection that consumes it; fused or not. Returns the projection.
  PlannedInstruction& normed_gemv(bool fuse_norm, const std::string& norm_name, WeightKind norm_kind, BufferId x, const std::string& name,
                                  Matrix matrix, std::uint32_t fused, std::vector<Segment> segments) {
    const BufferId norm_weight = vector_weight(norm_name + ".w", norm_kind, spec_.hidden);
    const BufferId input = fuse_norm ? x : rms_norm(norm_name, x, norm_weight);
    PlannedInstruction& in = gemv(name, matrix, fused | (fuse_norm ? kFusedNorm : 0u), std::move(segments));
    in.input = reads(input);
    if (fuse_norm) in.norm_weight = norm_weight;
    return in;
  }

  // A projection back to the residual, and the add; fused or not. The delta stays fp32, so that fusing changes no number.
  BufferId residual_gemv(bool fuse_add, const std::string& name, Matrix matrix, std::uint32_t fused, BufferId input, BufferId x) {
    if (fuse_add) {
      const BufferId sum = next_residual();
      PlannedInstruction& in = gemv(name, matrix, fused | kFusedResidualAdd, rows(spec_.hidden));
      in.input = reads(input);
      in.residual = reads(x);
      in.output = writes(sum);
      return sum;
    }
    const BufferId delta = vector(name + ".out", DType::F32, spec_.hidden);
    PlannedInstruction& in = gemv(name, matrix, fused, rows(spec_.hidden));
    in.input = reads(input);
    in.output = writes(delta);
    return add_residual(name + "_add", x, delta);
  }

  BufferId attention_block(BufferId x) {
    const Fusion& f = config_.fusion;
    const std::vector<std::int64_t> cache_shape = each({spec_.kv_heads, target_.max_seq, spec_.head_dim});
    const std::string index = std::to_string(layer_);
    const BufferId k_cache = buffer("kv.k." + index, Space::Kv, format_.kv, cache_shape);
    const BufferId v_cache = buffer("kv.v." + index, Space::Kv, format_.kv, cache_shape);
    const BufferId q_norm = spec_.qk_norm ? vector_weight("q_norm.w", WeightKind::QNorm, spec_.head_dim) : kNone;
    const BufferId k_norm = spec_.qk_norm ? vector_weight("k_norm.w", WeightKind::KNorm, spec_.head_dim) : kNone;
    const BufferId q = vector("q", format_.activations, spec_.q_rows());

    const std::int32_t qkv_rows = packed_rows(spec_, Matrix::Qkv);
    std::vector<Segment> segments = rows(qkv_rows);
    if (spec_.qk_norm && f.qkv_rope_append) {
      // The norm of a head needs the whole head in one task.
      const std::int32_t qk_rows = spec_.q_rows() + spec_.kv_rows();
      const std::int32_t whole_heads = (n_tile_ + spec_.head_dim - 1) / spec_.head_dim * spec_.head_dim;
      segments = {{0, qk_rows, whole_heads}, {qk_rows, qkv_rows, n_tile_}};
    }
    if (f.qkv_rope_append) {
      PlannedInstruction& in = normed_gemv(f.norm_qkv, "attn_norm", WeightKind::AttnNorm, x, "qkv", Matrix::Qkv, kFusedRopeAppend, segments);
      in.q_norm = q_norm;
      in.k_norm = k_norm;
      in.rope = rope_;
      in.output = writes(q);
      in.k_cache = writes(k_cache);
      in.v_cache = writes(v_cache);
    } else {
      const BufferId qkv = vector("qkv.out", DType::F32, qkv_rows);
      const BufferId k = vector("k", DType::F32, spec_.kv_rows());
      normed_gemv(f.norm_qkv, "attn_norm", WeightKind::AttnNorm, x, "qkv", Matrix::Qkv, 0, segments).output = qkv;
      writes(qkv);
      PlannedInstruction& rope = add("rope", Opcode::Rope, heads(spec_.heads + spec_.kv_heads, spec_.head_dim), spec_.head_dim);
      rope.input = reads(qkv, true);
      rope.q_norm = q_norm;
      rope.k_norm = k_norm;
      rope.rope = rope_;
      rope.output = writes(q);
      rope.k_output = writes(k);
      PlannedInstruction& append = add("kv_append", Opcode::KvAppend, heads(spec_.kv_heads, spec_.head_dim), spec_.head_dim);
      append.input = reads(k, true);
      append.second_input = reads(qkv, true);
      append.k_cache = writes(k_cache);
      append.v_cache = writes(v_cache);
    }

    if (attention_in_o(f)) return attention_o(x, q, k_cache, v_cache);
    const std::int32_t splits = plan_.attention.splits;
    const BufferId partials = splits > 1 ? buffer(prefix_ + "partials", Space::Activation, DType::F32,
                                                  each({splits, spec_.kv_heads, spec_.gqa(), spec_.head_dim + kPartialTail}))
                                         : kNone;
    const bool combine_in_o = splits > 1 && f.combine_o;
    const BufferId attn = combine_in_o ? kNone : vector("attn", format_.activations, spec_.q_rows());
    PlannedInstruction& tile =
        add("attention", Opcode::AttentionTile, {{0, plan_.attention.split_step * target_.batch * spec_.kv_heads, 1}}, 1, Ledger::Attention);
    tile.input = reads(q, true);
    tile.k_cache = reads(k_cache, true);
    tile.v_cache = reads(v_cache, true);
    tile.output = writes(splits > 1 ? partials : attn);
    if (splits > 1 && !combine_in_o) {
      PlannedInstruction& combine =
          add("combine", Opcode::AttentionCombine, heads(spec_.kv_heads, spec_.gqa() * spec_.head_dim), partial_bytes(spec_) * splits);
      combine.input = reads(partials, true);
      combine.output = writes(attn);
    }
    return residual_gemv(f.o_add, "o_proj", Matrix::O, combine_in_o ? kFusedCombine : 0u, combine_in_o ? partials : attn, x);
  }

  // One task an SM, of one head: its attention is computed for each task anew. The new residual is a sum a head.
  BufferId attention_o(BufferId x, BufferId q, BufferId k_cache, BufferId v_cache) {
    const std::int32_t units = spec_.hidden / kRowUnit;
    std::int32_t tile = 1;  // units
    while (tile < units && (units % tile != 0 || tile * kRowUnit < n_tile_ || units / tile * spec_.kv_heads > target_.sm_count)) ++tile;
    const BufferId sums = buffer("x" + std::to_string(residuals_++), Space::Activation, DType::F32, each({spec_.kv_heads, spec_.hidden}));
    PlannedInstruction& in = gemv("attention_o", Matrix::O, 0, {{0, spec_.kv_heads * spec_.hidden, tile * kRowUnit}});
    in.info.op = Opcode::AttentionO;
    in.row_bytes /= spec_.kv_heads;
    in.input = reads(q, true);
    in.k_cache = reads(k_cache, true);
    in.v_cache = reads(v_cache, true);
    in.residual = reads(x);
    in.output = writes(sums);
    return sums;
  }

  BufferId mlp_block(BufferId x) {
    const Fusion& f = config_.fusion;
    const BufferId act = vector("act", format_.activations, spec_.intermediate);
    const std::int32_t gate_up_rows = packed_rows(spec_, Matrix::GateUp);
    PlannedInstruction& in = normed_gemv(f.norm_gate_up, "mlp_norm", WeightKind::MlpNorm, x, "gate_up", Matrix::GateUp,
                                         f.gate_up_silu ? kFusedSiluMul : 0u, rows(gate_up_rows));
    if (f.gate_up_silu) {
      in.output = writes(act);
    } else {
      in.output = writes(vector("gate_up.out", DType::F32, gate_up_rows));
      const BufferId gate_up = in.output;
      PlannedInstruction& silu = add("silu_mul", Opcode::SiluMul, rows(spec_.intermediate), dtype_bytes(DType::F32));
      silu.input = reads(gate_up);
      silu.output = writes(act);
    }
    return residual_gemv(f.down_add, "down", Matrix::Down, 0, act, x);
  }

  void head(BufferId x) {
    const Fusion& f = config_.fusion;
    const BufferId logits = buffer("logits", Space::Output, DType::F32, each({spec_.vocab}));
    // Steps of one launch: the argmax replaces the token that the next step embeds.
    const bool feeds_back = config_.kernel.tokens_per_launch > 1;
    const BufferId next_token = feeds_back ? token_ : buffer("next_token", Space::Output, DType::I32, {target_.batch});
    const BufferId partials = buffer("argmax_partials", Space::Activation, DType::I32, each({0, kArgmaxWords}));
    PlannedInstruction& lm_head = normed_gemv(f.norm_lm_head, "final_norm", WeightKind::FinalNorm, x, "lm_head", Matrix::LmHead,
                                              f.lm_head_argmax ? kFusedArgmax : 0u, rows(spec_.vocab));
    lm_head.output = writes(logits);
    if (f.lm_head_argmax) {
      lm_head.partial = writes(partials);
    } else {
      PlannedInstruction& in = add("argmax_partial", Opcode::ArgmaxPartial, rows(spec_.vocab), dtype_bytes(DType::F32));
      in.input = reads(logits);
      in.partial = writes(partials);
    }
    PlannedInstruction& argmax = add("argmax", Opcode::Argmax, {{0, target_.batch, 1}}, 1);
    argmax.input = reads(partials);
    // The token's reader of the same step comes before it: an edge to the next step (lower_emit.cpp), not one that an instruction waits for.
    argmax.output = feeds_back ? next_token : writes(next_token);
    argmax.signals = feeds_back;
  }

  // --- dependencies -------------------------------------------------------------------------------------------------------------------------

  // A task signals one counter, so an instruction is split into counters per head only where every reader can make use of it.
  void choose_groups() {
    if (config_.kernel.counters != CounterGranularity::KvHead || spec_.kv_heads == 1) return;
    std::vector<char> read_whole(plan_.instructions.size(), 0), read_per_head(plan_.instructions.size(), 0);
    for (const auto& needs : needs_)
      for (const Need& need : needs)
        if (const InstructionId from = plan_.producer[static_cast<std::size_t>(need.buffer)]; from != kNone)
          (need.per_head ? read_per_head : read_whole)[static_cast<std::size_t>(from)] = 1;
    for (std::size_t i = 0; i < plan_.instructions.size(); ++i) plan_.instructions[i].grouped = read_per_head[i] && !read_whole[i];
  }

  void choose_waits() {
    plan_.order = InstructionOrder(plan_.instructions.size());
    for (std::size_t i = 0; i < plan_.instructions.size(); ++i) {
      std::vector<Dependency> needed;
      for (const Need& need : needs_[i]) {
        const InstructionId from = plan_.producer[static_cast<std::size_t>(need.buffer)];
        if (from != kNone) needed.push_back({from, need.per_head && plan_.instructions[static_cast<std::size_t>(from)].grouped});
      }
      plan_.instructions[i].waits = plan_.order.add(std::move(needed));
      for (const Dependency& d : plan_.instructions[i].waits) plan_.instructions[static_cast<std::size_t>(d.from)].signals = true;
    }
  }

  const ModelSpec& spec_;
  const ScheduleConfig& config_;
  const LoweringTarget& target_;
  const NumericFormat& format_;
  const std::int32_t n_tile_;
  Plan plan_;
  std::vector<std::vector<Need>> needs_;  // [instruction]: what it reads of other instructions
  BufferId token_ = kNone, rope_ = kNone;
  int layer_ = -1;
  std::string prefix_;
  int residuals_ = 0;
};

}  // namespace

Plan make_plan(const ModelSpec& spec, const ScheduleConfig& config, const LoweringTarget& target, const NumericFormat& format) {
  return Builder(spec, config, target, format).build();
}

std::int32_t head_of_row(const ModelSpec& spec, const Instruction& instruction, std::int32_t row) {
  switch (instruction.op) {
    case Opcode::Gemv: {  // Qkv
      if (row < spec.q_rows()) return row / (spec.gqa() * spec.head_dim);
      return (row - spec.q_rows()) % spec.kv_rows() / spec.head_dim;
    }
    case Opcode::Rope:
      return row < spec.heads ? row / spec.gqa() : row - spec.heads;
    case Opcode::AttentionTile:
      return row % spec.kv_heads;
    case Opcode::AttentionO:
      return row / spec.hidden;
    default:
      return row;  // KvAppend, AttentionCombine: rows are kv heads
  }
}

std::int32_t head_rows_end(const ModelSpec& spec, const Instruction& instruction, std::int32_t row) {
  switch (instruction.op) {
    case Opcode::Gemv: {
      const std::int32_t group = row < spec.q_rows() ? spec.gqa() * spec.head_dim : spec.head_dim;
      const std::int32_t base = row < spec.q_rows() ? 0 : spec.q_rows();
      return row + group - (row - base) % group;
    }
    case Opcode::Rope:
      return row < spec.heads ? (row / spec.gqa() + 1) * spec.gqa() : row + 1;
    case Opcode::AttentionO:
      return (row / spec.hidden + 1) * spec.hidden;
    default:
      return row + 1;
  }
}

}  // namespace amk::lowering
