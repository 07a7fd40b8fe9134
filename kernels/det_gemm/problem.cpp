#include "kernels/det_gemm/problem.h"

#include <limits>

namespace amk::det_gemm {

std::string_view to_string(Op op) { return op == Op::Fwd ? "fwd" : op == Op::Da ? "da" : "db"; }
std::string_view to_string(WeightLayout layout) { return layout == WeightLayout::KN ? "kn" : "nk"; }
std::string_view to_string(OutType type) { return type == OutType::Bf16 ? "bf16" : "fp32"; }

Canonical canonical(const Problem& p) {
  const bool kn = p.weights == WeightLayout::KN;
  switch (p.op) {
    case Op::Fwd:
      return {p.M, p.N, p.K, true, !kn, p.out, 0};
    case Op::Da:  // contraction over N: along B's rows when B is [K,N]
      return {p.M, p.K, p.N, true, kn, p.out, 0};
    case Op::Db:  // contraction over tokens: never contiguous; the output has B's layout
      if (kn) return {p.K, p.N, p.M, false, false, p.out, p.chunk, p.resumed};
      return {p.N, p.K, p.M, false, false, p.out, p.chunk, p.resumed};
  }
  return {};
}

std::int64_t dense_stride_x(const Canonical& c) { return c.x_k_contiguous ? c.k : c.m; }
std::int64_t dense_stride_y(const Canonical& c) { return c.y_k_contiguous ? c.k : c.n; }

double flops(const Canonical& c) { return 2.0 * static_cast<double>(c.m) * static_cast<double>(c.n) * static_cast<double>(c.k); }

std::int64_t compulsory_bytes(const Canonical& c) {
  // Extents are below 2^31, so the exact value may exceed 64 bits only where no machine could hold it.
  const double elements = 2.0 * (static_cast<double>(c.m) + static_cast<double>(c.n)) * static_cast<double>(c.k) +
                          (c.out == OutType::Bf16 ? 2.0 : 4.0) * static_cast<double>(c.m) * static_cast<double>(c.n);
  if (elements > 9e18) return std::numeric_limits<std::int64_t>::max();
  return 2 * (c.m * c.k + c.n * c.k) + (c.out == OutType::Bf16 ? 2 : 4) * c.m * c.n;
}

}  // namespace amk::det_gemm
