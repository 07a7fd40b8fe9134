#include <algorithm>

#include "core/program/packing.h"
#include "core/target/cost_model.h"

namespace amk {
namespace {

// 1 GB/s = 1e3 bytes per µs; 1 TFLOPS = 1e6 FLOP per µs.
double bound_us(const Roofline& roofline, const GpuTarget& target) {
  return std::max(static_cast<double>(roofline.hbm_bytes) / (target.peak_bandwidth_gbs * 1e3), roofline.flops / (target.peak_bf16_tflops * 1e6));
}

}  // namespace

Roofline decode_roofline(const ModelSpec& spec, const GpuTarget& target, int position, int kv_bytes_per_element, int batch) {
  // Every KV entry that the last token's query sees is read once in each layer; the window hides the older ones.
  const std::int64_t seen = std::max(0, spec.sliding_window ? std::min(position, *spec.sliding_window) : position);
  const std::int64_t kv_elements = std::int64_t{2} * batch * spec.layers * spec.kv_rows() * seen;
  const std::int64_t bytes = spec.decode_weight_bytes() + kv_elements * kv_bytes_per_element;

  const double matrix_elements = static_cast<double>(spec.layers) * (static_cast<double>(spec.hidden) * (2.0 * spec.q_rows() + 2.0 * spec.kv_rows()) +
                                                                     3.0 * static_cast<double>(spec.hidden) * spec.intermediate) +
                                 static_cast<double>(spec.hidden) * spec.vocab;
  const double attention_flops = 4.0 * spec.layers * static_cast<double>(spec.q_rows()) * static_cast<double>(seen);

  Roofline roofline;
  roofline.hbm_bytes = std::max<std::int64_t>(0, bytes - target.l2_bytes);
  roofline.flops = batch * (2.0 * matrix_elements + attention_flops);
  roofline.bound_us = bound_us(roofline, target);
  return roofline;
}

Roofline instruction_roofline(const ModelSpec& spec, std::string_view op, const GpuTarget& target, int position, int kv_bytes_per_element) {
  Roofline roofline;
  std::int64_t bytes = 0;
  if (op == "attention") {
    const std::int64_t seen = std::max(0, spec.sliding_window ? std::min(position, *spec.sliding_window) : position);
    bytes = std::int64_t{2} * spec.layers * spec.kv_rows() * seen * kv_bytes_per_element;
    roofline.flops = 4.0 * spec.layers * static_cast<double>(spec.q_rows()) * static_cast<double>(seen);
  } else {
    const Matrix matrix = op == "qkv"       ? Matrix::Qkv
                          : op == "o_proj"  ? Matrix::O
                          : op == "gate_up" ? Matrix::GateUp
                          : op == "down"    ? Matrix::Down
                                            : Matrix::LmHead;
    const std::int64_t layers = matrix == Matrix::LmHead ? 1 : spec.layers;
    const std::int64_t elements = layers * packed_rows(spec, matrix) * packed_cols(spec, matrix);
    bytes = elements * dtype_bytes(spec.matrix_dtype());
    if (spec.weight_format == WeightFormat::Int8) bytes += layers * packed_rows(spec, matrix) * dtype_bytes(DType::F32);
    roofline.flops = 2.0 * static_cast<double>(elements);
  }
  roofline.hbm_bytes = std::max<std::int64_t>(0, bytes - target.l2_bytes);
  roofline.bound_us = bound_us(roofline, target);
  return roofline;
}

}  // namespace amk
