#include "kernels/det_gemm/numeric_class.h"

#include <string>

namespace amk::det_gemm {

Result<NumericClass> numeric_class_of(int sm_major, int sm_minor) {
  if (sm_major == 9 && sm_minor == 0) return NumericClass{.id = "hopper-k16", .step = {16, 25}, .chunk = 0, .verified = true};
  // Ampere and Ada execute m16n8k16 as two k8 steps with 24 fractional bits (published studies of tensor-core numerics); not compared here.
  if (sm_major == 8) return NumericClass{.id = "ampere-k8", .step = {8, 24}, .chunk = 0, .verified = false};
  // Newer ones are taken to add like Hopper until somebody compares bits: the id keeps their results apart from Hopper's.
  if (sm_major > 9)
    return NumericClass{.id = "sm" + std::to_string(sm_major) + std::to_string(sm_minor) + "-k16", .step = {16, 25}, .chunk = 0, .verified = false};
  return fail(ErrorKind::Unsupported, "sm_" + std::to_string(sm_major) + std::to_string(sm_minor) + " has no bf16 matrix instruction",
              {{"accepted", "sm_80 and newer"}});
}

Result<NumericClass> chunked(const NumericClass& base, std::int64_t chunk) {
  if (chunk <= 0 || chunk % 16 != 0) return bad_field("chunk", chunk, "a positive multiple of 16");
  NumericClass result = base;
  result.chunk = chunk;
  result.id += "/chunk" + std::to_string(chunk);
  return result;
}

}  // namespace amk::det_gemm
