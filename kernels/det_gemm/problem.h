// A deterministic GEMM as the user states it, and the one form in which everything else sees it. Value types, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace amk::det_gemm {

enum class Op {
  Fwd,  // C[M,N]  = A[M,K] · B
  Da,   // dA[M,K] = dC[M,N] · Bᵀ
  Db,   // dB      = Aᵀ · dC, in B's own layout
};
enum class WeightLayout { KN, NK };  // how B lies in memory: row-major [K,N], or row-major [N,K] (a linear layer's weight)
enum class OutType { Bf16, Fp32 };

std::string_view to_string(Op op);
std::string_view to_string(WeightLayout layout);
std::string_view to_string(OutType type);

struct Problem {
  Op op = Op::Fwd;
  std::int64_t M = 0, N = 0, K = 0;  // of the forward product
  WeightLayout weights = WeightLayout::KN;
  OutType out = OutType::Bf16;
  std::int64_t chunk = 0;  // Db only: canonical chunk of tokens; 0 = one chain
  bool resumed = false;    // Db in one chain: goes on from the fp32 sums of the calls before, at a multiple of 16 tokens
  bool operator==(const Problem&) const = default;
};

// out[m,n] = Σ_k x(m,k)·y(n,k), out row-major. `x_k_contiguous`: neighbours in k are neighbours in memory (else neighbours in m are).
struct Canonical {
  std::int64_t m = 0, n = 0, k = 0;
  bool x_k_contiguous = true, y_k_contiguous = true;
  OutType out = OutType::Bf16;
  std::int64_t chunk = 0;
  bool resumed = false;  // accumulators start from Buffers::total_in
  bool operator==(const Canonical&) const = default;
};
Canonical canonical(const Problem& problem);

// A bf16 operand of the canonical form: element (i, k).
struct Operand {
  const std::uint16_t* data = nullptr;
  std::int64_t stride = 0;  // elements between neighbours along the dimension that is not contiguous
  bool k_contiguous = true;
  std::uint16_t at(std::int64_t i, std::int64_t k) const { return k_contiguous ? data[i * stride + k] : data[k * stride + i]; }
};

// Dense operands and output of a problem: strides in elements.
std::int64_t dense_stride_x(const Canonical& c);
std::int64_t dense_stride_y(const Canonical& c);

double flops(const Canonical& c);
// Each input read once, the output written once.
std::int64_t compulsory_bytes(const Canonical& c);

}  // namespace amk::det_gemm
