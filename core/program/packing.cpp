#include "core/program/packing.h"

namespace amk {
namespace {

// Row of a head at position `row` of its pair units: units hold kPairsPerUnit rows of the first half, then their partners of the second.
std::int32_t unpair(std::int32_t row, std::int32_t half) {
  const std::int32_t unit = row / kRowUnit;
  const std::int32_t k = row % kRowUnit;
  return k < kPairsPerUnit ? unit * kPairsPerUnit + k : half + unit * kPairsPerUnit + (k - kPairsPerUnit);
}

Status check_multiple(const char* field, int value, int of) {
  if (value <= 0 || value % of != 0)
    return fail(ErrorKind::Unsupported,
                std::string(field) + " is " + std::to_string(value) + "; accepted: positive multiples of " + std::to_string(of),
                {{"field", field}, {"value", value}, {"accepted", "positive multiples of " + std::to_string(of)}});
  return {};
}

Status check_range(const char* field, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) {
    const std::string accepted = std::to_string(low) + " to " + std::to_string(high);
    return fail(ErrorKind::Unsupported, std::string(field) + " is " + std::to_string(value) + "; accepted: " + accepted,
                {{"field", field}, {"value", value}, {"accepted", accepted}});
  }
  return {};
}

}  // namespace

std::int32_t packed_rows(const ModelSpec& spec, Matrix matrix) {
  switch (matrix) {
    case Matrix::Qkv:
      return spec.q_rows() + 2 * spec.kv_rows();
    case Matrix::O:
      return spec.hidden;
    case Matrix::GateUp:
      return 2 * spec.intermediate;
    case Matrix::Down:
      return spec.hidden;
    case Matrix::LmHead:
      return spec.vocab;
    case Matrix::None:
      return 0;
  }
  return 0;
}

std::int32_t packed_cols(const ModelSpec& spec, Matrix matrix) {
  switch (matrix) {
    case Matrix::Qkv:
      return spec.hidden;
    case Matrix::O:
      return spec.q_rows();
    case Matrix::GateUp:
      return spec.hidden;
    case Matrix::Down:
      return spec.intermediate;
    case Matrix::LmHead:
      return spec.hidden;
    case Matrix::None:
      return 0;
  }
  return 0;
}

bool has_bias(const ModelSpec& spec, Matrix matrix) {
  switch (matrix) {
    case Matrix::Qkv:
      return spec.qkv_bias;
    case Matrix::O:
      return spec.o_bias;
    case Matrix::GateUp:
    case Matrix::Down:
      return spec.mlp_bias;
    case Matrix::LmHead:
    case Matrix::None:
      break;
  }
  return false;
}

WeightKind bias_of(WeightKind kind) {
  switch (kind) {
    case WeightKind::Q:
      return WeightKind::QBias;
    case WeightKind::K:
      return WeightKind::KBias;
    case WeightKind::V:
      return WeightKind::VBias;
    case WeightKind::O:
      return WeightKind::OBias;
    case WeightKind::Gate:
      return WeightKind::GateBias;
    case WeightKind::Up:
      return WeightKind::UpBias;
    default:
      return WeightKind::DownBias;
  }
}

LogicalRow logical_row(const ModelSpec& spec, Matrix matrix, std::int32_t packed_row) {
  switch (matrix) {
    case Matrix::Qkv: {
      const std::int32_t q_rows = spec.q_rows();
      const std::int32_t kv_rows = spec.kv_rows();
      if (packed_row >= q_rows + kv_rows) return {WeightKind::V, packed_row - q_rows - kv_rows};
      const bool is_q = packed_row < q_rows;
      const std::int32_t row = is_q ? packed_row : packed_row - q_rows;
      const std::int32_t in_head = row % spec.head_dim;
      return {is_q ? WeightKind::Q : WeightKind::K, row - in_head + unpair(in_head, spec.head_dim / 2)};
    }
    case Matrix::GateUp: {
      const std::int32_t unit = packed_row / kRowUnit;
      const std::int32_t k = packed_row % kRowUnit;
      const bool is_gate = k < kPairsPerUnit;
      return {is_gate ? WeightKind::Gate : WeightKind::Up, unit * kPairsPerUnit + k % kPairsPerUnit};
    }
    case Matrix::O:
      return {WeightKind::O, packed_row};
    case Matrix::Down:
      return {WeightKind::Down, packed_row};
    case Matrix::LmHead:
      return {WeightKind::LmHead, packed_row};
    case Matrix::None:
      break;
  }
  return {};
}

Status check_packable(const ModelSpec& spec) {
  // Upper limits keep every row number in 31 bits and every byte offset (rows * columns * 4, positions * rows * 4) in 63.
  AMK_CHECK(check_range("layers", spec.layers, 1, 1024));
  AMK_CHECK(check_range("vocab", spec.vocab, 1, 1 << 24));
  AMK_CHECK(check_range("hidden", spec.hidden, 1, 1 << 20));
  AMK_CHECK(check_range("intermediate", spec.intermediate, 1, 1 << 24));
  AMK_CHECK(check_range("kv_heads", spec.kv_heads, 1, 4096));
  AMK_CHECK(check_range("heads", spec.heads, spec.kv_heads, 4096));
  AMK_CHECK(check_range("head_dim", spec.head_dim, 1, 4096));
  AMK_CHECK(check_range("max_position", spec.max_position, 1, 1 << 24));
  AMK_CHECK(check_multiple("heads", spec.heads, spec.kv_heads));
  AMK_CHECK(check_multiple("head_dim", spec.head_dim, kRowUnit));
  AMK_CHECK(check_multiple("intermediate", spec.intermediate, kPairsPerUnit));
  AMK_CHECK(check_multiple("hidden", spec.hidden, kRowUnit));
  if (spec.weight_format == WeightFormat::Int8) {  // exact sums of 127 * 128 a column fit 31 bits
    constexpr int kMostColumns = 1 << 17;
    AMK_CHECK(check_multiple("hidden (int8)", spec.hidden, 16));  // of bytes that one copy moves: the last row of an odd number ends on one
    AMK_CHECK(check_range("hidden (int8)", spec.hidden, 1, kMostColumns));
    AMK_CHECK(check_range("heads * head_dim (int8)", std::int64_t{spec.heads} * spec.head_dim, 1, kMostColumns));
    AMK_CHECK(check_range("intermediate (int8)", spec.intermediate, 1, kMostColumns));
  }
  if (spec.sliding_window) AMK_CHECK(check_range("sliding_window", *spec.sliding_window, 1, std::numeric_limits<std::int32_t>::max()));
  return {};
}

}  // namespace amk
