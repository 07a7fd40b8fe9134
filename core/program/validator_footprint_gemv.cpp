#include <algorithm>

#include "core/program/packing.h"
#include "core/program/validator_footprint.h"

namespace amk::validation {

namespace {

std::uint32_t allowed_flags(Matrix matrix) {
  switch (matrix) {
    case Matrix::Qkv:
      return kFusedNorm | kFusedRopeAppend;
    case Matrix::O:
      return kFusedResidualAdd | kFusedCombine;
    case Matrix::GateUp:
      return kFusedNorm | kFusedSiluMul;
    case Matrix::Down:
      return kFusedResidualAdd;
    case Matrix::LmHead:
      return kFusedNorm | kFusedArgmax;
    case Matrix::None:
      break;
  }
  return 0;
}

// Where no norm is fused.
Holds input_of(Matrix matrix) {
  switch (matrix) {
    case Matrix::Qkv:
      return Holds::AttnNormed;
    case Matrix::O:
      return Holds::Attention;
    case Matrix::GateUp:
      return Holds::MlpNormed;
    case Matrix::Down:
      return Holds::Act;
    default:
      return Holds::FinalNormed;
  }
}

WeightKind norm_before(Matrix matrix) {
  return matrix == Matrix::Qkv ? WeightKind::AttnNorm : matrix == Matrix::GateUp ? WeightKind::MlpNorm : WeightKind::FinalNorm;
}

}  // namespace

void FootprintChecker::gemv() {
  const Task& t = *task_;
  if (t.matrix == Matrix::None) return refuse("a Gemv of no matrix");
  if ((t.fused & ~allowed_flags(t.matrix)) != 0)
    return refuse(cat("fused flags ", t.fused, " that its matrix (", to_string(t.matrix), ") does not have"));
  const std::int64_t rows = packed_rows(spec_, t.matrix);
  if (!rows_within(rows)) return;
  // Whole packed units: a unit holds rows that must meet.
  if (t.row_begin % kRowUnit != 0 || (t.row_end % kRowUnit != 0 && t.row_end != rows)) return refuse("its rows cut a packed unit of eight");
  gemv_inputs(packed_cols(spec_, t.matrix));
  if (!problem_) gemv_outputs();
}

void FootprintChecker::gemv_inputs(std::int64_t cols) {
  const Task& t = *task_;
  const std::int64_t rows = packed_rows(spec_, t.matrix);
  const Slice mine{t.row_begin, t.row_end - t.row_begin};
  if ((t.fused & kFusedCombine) != 0)
    partials(0, spec_.kv_heads);
  else if ((t.fused & kFusedNorm) != 0)
    normed_input(t.matrix, t.matrix == Matrix::GateUp ? sums() * cols : cols);
  else
    vector(true, "the input vector", input_of(t.matrix), cols, {0, cols});
  if ((t.fused & kFusedNorm) != 0) weight("the norm weight", {Matrix::None, norm_before(t.matrix), layer(), false}, spec_.hidden, {0, spec_.hidden});
  const bool int8 = spec_.weight_format == WeightFormat::Int8;
  weight("the weight rows", {t.matrix, WeightKind::Embedding, layer(), false}, rows * cols, {mine.first * cols, mine.count * cols},
         int8 ? Elements::Int8 : Elements::Float);
  if (int8) weight("the scale rows", {t.matrix, WeightKind::Embedding, layer(), false, true}, rows, mine, Elements::Float32);
  if (has_bias(spec_, t.matrix)) weight("the bias rows", {t.matrix, WeightKind::Embedding, layer(), true}, rows, mine);
  if ((t.fused & kFusedRopeAppend) != 0) {
    head_norms();
    rope_table();
  }
  if ((t.fused & kFusedResidualAdd) == 0) return;
  const std::int64_t vectors = t.matrix == Matrix::Down ? sums() : 1;
  for (std::int64_t v = 0; v < vectors; ++v)
    residual(true, "the residual slice", t.matrix == Matrix::Down ? before_mlp() : before_attention(), vectors * spec_.hidden,
             {v * spec_.hidden + mine.first, mine.count});
}

// The residual that a fused norm reads.
void FootprintChecker::normed_input(Matrix matrix, std::int64_t total) {
  const std::int32_t number = matrix == Matrix::Qkv ? before_attention() : matrix == Matrix::GateUp ? before_mlp() : after_layers();
  residual(true, "the residual", number, total, {0, total});
}

// What goes back to the residual: the new one, or what is yet to be added.
void FootprintChecker::projected(Matrix matrix, Slice slice) {
  const bool down = matrix == Matrix::Down;
  if ((task_->fused & kFusedResidualAdd) != 0)
    residual(false, "the new residual slice", down ? after_layer() : before_mlp(), spec_.hidden, slice);
  else
    vector(false, "the output slice", down ? Holds::DownDelta : Holds::ODelta, spec_.hidden, slice);
}

void FootprintChecker::gemv_outputs() {
  const Task& t = *task_;
  const Slice mine{t.row_begin, t.row_end - t.row_begin};
  switch (t.matrix) {
    case Matrix::Qkv:
      qkv_outputs();
      break;
    case Matrix::GateUp: {
      const Slice pairs{mine.first / kRowUnit * kPairsPerUnit, mine.count / kRowUnit * kPairsPerUnit};
      if ((t.fused & kFusedSiluMul) != 0) {
        vector(false, "the act slice", Holds::Act, spec_.intermediate, pairs);
        break;
      }
      vector(false, "the gate slice", Holds::GateUp, std::int64_t{2} * spec_.intermediate, pairs);
      vector(false, "the up slice", Holds::GateUp, std::int64_t{2} * spec_.intermediate, {spec_.intermediate + pairs.first, pairs.count});
      break;
    }
    case Matrix::LmHead:
      take(false, {"the logits slice", {Holds::Logits, 0}, Space::Output, Elements::Float32, spec_.vocab, mine});
      break;
    default:
      projected(t.matrix, mine);
  }
  if ((t.fused & kFusedArgmax) == 0 || problem_) return;
  if (next_write_ == t.writes.size()) return refuse("no region for its argmax partial");
  const std::int64_t total = p_.buffers[static_cast<std::size_t>(t.writes[next_write_].buffer)].bytes / p_.batch / dtype_bytes(DType::I32);
  take(false, {"its argmax partial",
               {Holds::ArgmaxPartials, 0},
               Space::Activation,
               Elements::Int32,
               total,
               {std::int64_t{t.partial} * kArgmaxWords, kArgmaxWords}});
}

// Packed rows are in natural order but for q and k heads, whose halves are paired: a whole head is one slice, part of a head two.
void FootprintChecker::qkv_outputs() {
  const Task& t = *task_;
  const std::int64_t dim = spec_.head_dim, q = spec_.q_rows(), kv = spec_.kv_rows();
  const bool append = (t.fused & kFusedRopeAppend) != 0;
  const auto natural = [&](std::int64_t first, std::int64_t end, const auto& slice) {
    while (first < end && !problem_) {
      const std::int64_t head = first / dim * dim;
      if (first == head && end - first >= dim) {
        const std::int64_t whole = (end - first) / dim * dim;
        slice(first, first + whole);
        first += whole;
        continue;
      }
      const std::int64_t stop = std::min(end, head + dim);
      const std::int64_t low = head + (first - head) / 2, high = head + (stop - head) / 2;  // units of four of eight
      slice(low, high);
      slice(low + dim / 2, high + dim / 2);
      first = stop;
    }
  };
  if (append && spec_.qk_norm)
    for (const std::int64_t edge : {t.row_begin, t.row_end})
      if (edge < q + kv && edge % dim != 0) return refuse("its rows cut a head whose norm it computes");
  const std::int64_t out = append ? q : q + 2 * kv;
  natural(t.row_begin, std::min<std::int64_t>(t.row_end, q), [&](std::int64_t first, std::int64_t end) {
    vector(false, "a q slice", append ? Holds::Q : Holds::Qkv, out, {first, end - first});
  });
  natural(std::max<std::int64_t>(t.row_begin, q) - q, std::min<std::int64_t>(t.row_end, q + kv) - q, [&](std::int64_t first, std::int64_t end) {
    if (append)
      cache_rows(true, first, end);
    else
      vector(false, "a k slice", Holds::Qkv, out, {q + first, end - first});
  });
  const std::int64_t v = std::max<std::int64_t>(t.row_begin, q + kv);
  if (v >= t.row_end) return;
  if (append)
    cache_rows(false, v - q - kv, t.row_end - q - kv);
  else
    vector(false, "the v slice", Holds::Qkv, out, {v, t.row_end - v});
}

}  // namespace amk::validation
