#include "core/reference/reference_vm_weights.h"

#include <algorithm>
#include <array>

#include "core/program/packing.h"
#include "core/reference/reference_vm_memory.h"

namespace amk::vm {
namespace {

// Below this many matrix elements in all, rows are converted to fp32 once instead of at every use.
constexpr std::int64_t kConvertOnceElements = std::int64_t{8} << 20;

tl::unexpected<Error> unbound(const Buffer& buffer, const std::string& why) {
  return fail(ErrorKind::InvalidArgument, "weight buffer " + buffer.name + ": " + why, {{"field", buffer.name}});
}

void append_rounded(const TensorView& view, std::int64_t row, DType dtype, std::vector<float>& scratch, std::vector<float>& out) {
  scratch.resize(static_cast<std::size_t>(view.cols));
  row_to_f32(view, row, scratch);
  if (dtype != view.dtype)
    for (float& v : scratch) v = round_to(dtype, v);
  out.insert(out.end(), scratch.begin(), scratch.end());
}

std::vector<WeightKind> kinds_of(Matrix matrix) {
  switch (matrix) {
    case Matrix::Qkv:
      return {WeightKind::Q, WeightKind::K, WeightKind::V};
    case Matrix::GateUp:
      return {WeightKind::Gate, WeightKind::Up};
    case Matrix::O:
      return {WeightKind::O};
    case Matrix::Down:
      return {WeightKind::Down};
    case Matrix::LmHead:
      return {WeightKind::LmHead};
    case Matrix::None:
      break;
  }
  return {};
}

// Kind and size as the binding says, checked against the buffer's bytes.
Status shape_of(const Buffer& buffer, const ModelSpec& spec, WeightBuffer& out) {
  const WeightBinding& binding = buffer.binding;
  if (binding.layer < kNone || binding.layer >= spec.layers) return unbound(buffer, "no such layer");
  out.dtype = buffer.dtype;
  out.elements = buffer.bytes / dtype_bytes(buffer.dtype);
  if (binding.matrix == Matrix::None) {
    out.kind = binding.kind == WeightKind::Embedding ? WeightBuffer::Kind::Table : WeightBuffer::Kind::Vector;
    out.cols = out.kind == WeightBuffer::Kind::Table ? spec.hidden : out.elements;
    return {};
  }
  const std::int64_t rows = packed_rows(spec, binding.matrix);
  const bool matrix = binding.rows_of_matrix();
  out.kind = matrix ? WeightBuffer::Kind::Matrix : WeightBuffer::Kind::Vector;
  out.scale = binding.scale;
  out.cols = matrix ? packed_cols(spec, binding.matrix) : rows;
  if (out.elements != (matrix ? rows * out.cols : rows)) return unbound(buffer, "its size is not that of the packed matrix");
  if (binding.scale && (buffer.dtype != DType::F32 || binding.bias)) return unbound(buffer, "scales are fp32, and not a bias");
  return {};
}

Status bind_matrix(const Buffer& buffer, const Weights& weights, bool convert, WeightBuffer& out) {
  const ModelSpec& spec = weights.spec();
  const Matrix matrix = buffer.binding.matrix;
  const std::int64_t rows = packed_rows(spec, matrix);
  const std::vector<WeightKind> kinds = kinds_of(matrix);
  for (WeightKind kind : kinds) {
    TensorView view = weights.get(buffer.binding.bias ? bias_of(kind) : kind, buffer.binding.layer);
    if (!view) return unbound(buffer, "the model has no such tensor");
    const bool quantised = buffer.binding.scale || buffer.dtype == DType::I8;
    if (!buffer.binding.bias && quantised != (view.dtype == DType::I8)) return unbound(buffer, "its format is not that of the model's weights");
    if (!buffer.binding.scale) view.scales = nullptr;  // rows are the integers
    out.tensors.push_back(view);
  }
  const auto tensor_of = [&](WeightKind kind) -> const TensorView* {
    return &out.tensors[std::find(kinds.begin(), kinds.end(), kind) - kinds.begin()];
  };
  if (buffer.binding.scale) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const LogicalRow logical = logical_row(spec, matrix, static_cast<std::int32_t>(r));
      const TensorView& tensor = *tensor_of(logical.kind);
      if (logical.row >= tensor.rows) return unbound(buffer, "its shape is not that of the model's tensor");
      out.values.push_back(tensor.scales[logical.row]);
    }
    return {};
  }
  std::vector<float> scratch;
  if (buffer.binding.bias) {
    std::vector<std::vector<float>> natural;
    for (const TensorView& view : out.tensors) append_rounded(view, 0, buffer.dtype, scratch, natural.emplace_back());
    for (std::int64_t r = 0; r < rows; ++r) {
      const LogicalRow logical = logical_row(spec, matrix, static_cast<std::int32_t>(r));
      const std::vector<float>& values = natural[tensor_of(logical.kind) - out.tensors.data()];
      if (logical.row >= static_cast<std::int64_t>(values.size())) return unbound(buffer, "the bias is shorter than the matrix");
      out.values.push_back(values[logical.row]);
    }
    return {};
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const LogicalRow logical = logical_row(spec, matrix, static_cast<std::int32_t>(r));
    const TensorView* tensor = tensor_of(logical.kind);
    if (tensor->cols != out.cols || logical.row >= tensor->rows) return unbound(buffer, "its shape is not that of the model's tensor");
    out.packed_rows.push_back({tensor, logical.row});
    if (convert) append_rounded(*tensor, logical.row, buffer.dtype, scratch, out.values);
  }
  return {};
}

Status bind_plain(const Buffer& buffer, const Weights& weights, WeightBuffer& out) {
  const TensorView view = weights.get(buffer.binding.kind, buffer.binding.layer);
  if (!view) return unbound(buffer, "the model has no such tensor");
  if (buffer.bytes != view.elements() * dtype_bytes(buffer.dtype)) return unbound(buffer, "its size is not that of the model's tensor");
  if (out.kind == WeightBuffer::Kind::Table) {
    out.table = view;
    return {};
  }
  if (view.rows != 1) return unbound(buffer, "its tensor is no vector");
  std::vector<float> scratch;
  append_rounded(view, 0, buffer.dtype, scratch, out.values);
  return {};
}

}  // namespace

Result<WeightBuffers> WeightBuffers::shapes(const Program& program) {
  WeightBuffers result;
  for (const Buffer& buffer : program.buffers) {
    result.buffers_.emplace_back();
    if (buffer.space != Space::Weight) continue;
    auto shape = std::make_unique<WeightBuffer>();
    AMK_CHECK(shape_of(buffer, program.model, *shape));
    result.buffers_.back() = std::move(shape);
  }
  return result;
}

Result<WeightBuffers> WeightBuffers::create(const Program& program, const Weights& weights) {
  AMK_TRY(result, shapes(program));
  std::int64_t matrix_elements = 0;
  for (const auto& buffer : result.buffers_)
    if (buffer != nullptr && buffer->kind == WeightBuffer::Kind::Matrix) matrix_elements += buffer->elements;
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    if (buffer.space != Space::Weight) continue;
    WeightBuffer& bound = *result.buffers_[id];
    if (buffer.binding.matrix == Matrix::None) {
      AMK_CHECK(bind_plain(buffer, weights, bound));
    } else {
      bound.tensors.reserve(3);
      AMK_CHECK(bind_matrix(buffer, weights, matrix_elements <= kConvertOnceElements, bound));
    }
  }
  return result;
}

std::span<const float> WeightBuffers::row(BufferId id, std::int64_t row, std::vector<float>& scratch) const {
  const WeightBuffer& buffer = *buffers_[id];
  if (buffer.kind == WeightBuffer::Kind::Matrix && !buffer.values.empty())
    return std::span(buffer.values).subspan(static_cast<std::size_t>(row * buffer.cols), static_cast<std::size_t>(buffer.cols));
  const bool table = buffer.kind == WeightBuffer::Kind::Table;
  const TensorView& view = table ? buffer.table : *buffer.packed_rows[row].tensor;
  scratch.resize(static_cast<std::size_t>(view.cols));
  row_to_f32(view, table ? row : buffer.packed_rows[row].row, scratch);
  if (buffer.dtype != view.dtype)
    for (float& v : scratch) v = round_to(buffer.dtype, v);
  return scratch;
}

std::span<const float> WeightBuffers::vector(BufferId id, std::int64_t first, std::int64_t count) const {
  return std::span(buffers_[id]->values).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

float dot(std::span<const float> a, std::span<const float> b) {
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> lanes{};
  const std::size_t n = std::min(a.size(), b.size());
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::size_t l = 0; l < kLanes; ++l) lanes[l] += a[i + l] * b[i + l];
  for (; i < n; ++i) lanes[i % kLanes] += a[i] * b[i];
  for (std::size_t width = kLanes / 2; width > 0; width /= 2)
    for (std::size_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  return lanes[0];
}

}  // namespace amk::vm
