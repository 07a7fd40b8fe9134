// Packed row order of the fused weight matrices: a pure function shared by lowering, VMs, host packing, device code and tests.
// Rows are grouped in units of kRowUnit = 8. Where two logical rows must meet (gate i with up i; the two halves that RoPE rotates),
// a unit holds 4 of one and the 4 partners: rows 0–3 first halves, rows 4–7 second halves.
#pragma once

#include <cstdint>

#include "core/base/error.h"
#include "core/program/program.h"

namespace amk {

constexpr int kRowUnit = 8;
constexpr int kPairsPerUnit = 4;

struct LogicalRow {
  WeightKind kind = WeightKind::Q;
  std::int32_t row = 0;
};

std::int32_t packed_rows(const ModelSpec& spec, Matrix matrix);  // rows of the fused matrix (not padded)
std::int32_t packed_cols(const ModelSpec& spec, Matrix matrix);
bool has_bias(const ModelSpec& spec, Matrix matrix);
WeightKind bias_of(WeightKind kind);  // of a linear matrix that can have one: Q, K, V, O, Gate, Up, Down
// Qkv: q heads, then k heads (both in pair units), then v rows in natural order. GateUp: pair units of gate and up. Others: natural order.
LogicalRow logical_row(const ModelSpec& spec, Matrix matrix, std::int32_t packed_row);

// What the family needs of a model: head_dim % 8 == 0, intermediate % 4 == 0, hidden % 8 == 0. Names the field and value otherwise.
Status check_packable(const ModelSpec& spec);

}  // namespace amk
