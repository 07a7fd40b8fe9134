// Body of every variant; included once per instruction set (dot_sse2.cpp, dot_avx2.cpp, dot_avx512.cpp), each compiled with its own flags.
// Nothing here may have external linkage except the entry point, and no standard-library function may be instantiated: the linker could
// keep the wide copy of a shared inline function and run it on a narrow CPU.
#include <stddef.h>
#include <stdint.h>

namespace {

constexpr int kLanes = 16;  // of one vector; two vectors make the 32 partial sums
typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef uint32_t Words __attribute__((vector_size(kLanes * 4)));
typedef uint16_t Halves __attribute__((vector_size(kLanes * 2)));

inline float from_bits(uint32_t bits) {
  float f;
  __builtin_memcpy(&f, &bits, sizeof f);
  return f;
}

struct LoadF32 {
  static constexpr int kBytes = 4;
  static inline __attribute__((always_inline)) void many(const unsigned char* p, Floats& out) { __builtin_memcpy(&out, p, sizeof out); }
  static inline float one(const unsigned char* p) {
    float f;
    __builtin_memcpy(&f, p, sizeof f);
    return f;
  }
};

struct LoadBF16 {
  static constexpr int kBytes = 2;
  static inline __attribute__((always_inline)) void many(const unsigned char* p, Floats& out) {
    Halves h;
    __builtin_memcpy(&h, p, sizeof h);
    const Words w = __builtin_convertvector(h, Words) << 16;
    __builtin_memcpy(&out, &w, sizeof out);
  }
  static inline float one(const unsigned char* p) {
    uint16_t h;
    __builtin_memcpy(&h, p, sizeof h);
    return from_bits(static_cast<uint32_t>(h) << 16);
  }
};

// Exponent and mantissa shifted into place make a value 2^-112 of the right one (subnormals included); the product with 2^112 is exact.
// Infinity and NaN need the fp32 exponent set afterwards.
struct LoadF16 {
  static constexpr int kBytes = 2;
  static inline __attribute__((always_inline)) void many(const unsigned char* p, Floats& out) {
    Halves h;
    __builtin_memcpy(&h, p, sizeof h);
    const Words w = __builtin_convertvector(h, Words);
    const Words magnitude = (w & 0x7FFFu) << 13;
    Floats f;
    __builtin_memcpy(&f, &magnitude, sizeof f);
    f *= 0x1p112f;
    Words bits;
    __builtin_memcpy(&bits, &f, sizeof bits);
    const Words special = (Words)((w & 0x7C00u) == 0x7C00u) & 0x7F800000u;
    bits |= special | ((w & 0x8000u) << 16);
    __builtin_memcpy(&out, &bits, sizeof out);
  }
  static inline float one(const unsigned char* p) {
    uint16_t h;
    __builtin_memcpy(&h, p, sizeof h);
    uint32_t bits;
    const float f = from_bits(static_cast<uint32_t>(h & 0x7FFFu) << 13) * 0x1p112f;
    __builtin_memcpy(&bits, &f, sizeof bits);
    if ((h & 0x7C00u) == 0x7C00u) bits |= 0x7F800000u;
    return from_bits(bits | (static_cast<uint32_t>(h & 0x8000u) << 16));
  }
};

template <class Load>
inline __attribute__((always_inline)) float finish(const Floats& low, const Floats& high, const unsigned char* row, const float* x, int64_t done,
                                                   int64_t cols) {
  float s[2 * kLanes];
  __builtin_memcpy(s, &low, sizeof low);
  __builtin_memcpy(s + kLanes, &high, sizeof high);
  for (int64_t c = done; c < cols; ++c) s[c - done] += Load::one(row + c * Load::kBytes) * x[c];
  for (int half = kLanes; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) s[j] += s[j + half];
  return s[0];
}

// Two rows at a time: four independent chains of additions cover the latency of one.
template <class Load>
void gemv_rows(const unsigned char* rows, int64_t count, int64_t cols, const float* x, float* y) {
  const int64_t stride = cols * Load::kBytes;
  const int64_t whole = cols - cols % (2 * kLanes);
  int64_t r = 0;
  for (; r + 2 <= count; r += 2) {
    const unsigned char* a = rows + r * stride;
    const unsigned char* b = a + stride;
    Floats a0 = {}, a1 = {}, b0 = {}, b1 = {};
    for (int64_t c = 0; c < whole; c += 2 * kLanes) {
      Floats x0, x1, w;
      LoadF32::many(reinterpret_cast<const unsigned char*>(x + c), x0);
      LoadF32::many(reinterpret_cast<const unsigned char*>(x + c + kLanes), x1);
      Load::many(a + c * Load::kBytes, w);
      a0 += w * x0;
      Load::many(a + (c + kLanes) * Load::kBytes, w);
      a1 += w * x1;
      Load::many(b + c * Load::kBytes, w);
      b0 += w * x0;
      Load::many(b + (c + kLanes) * Load::kBytes, w);
      b1 += w * x1;
    }
    y[r] = finish<Load>(a0, a1, a, x, whole, cols);
    y[r + 1] = finish<Load>(b0, b1, b, x, whole, cols);
  }
  for (; r < count; ++r) {
    const unsigned char* a = rows + r * stride;
    Floats a0 = {}, a1 = {};
    for (int64_t c = 0; c < whole; c += 2 * kLanes) {
      Floats x0, x1, w;
      LoadF32::many(reinterpret_cast<const unsigned char*>(x + c), x0);
      LoadF32::many(reinterpret_cast<const unsigned char*>(x + c + kLanes), x1);
      Load::many(a + c * Load::kBytes, w);
      a0 += w * x0;
      Load::many(a + (c + kLanes) * Load::kBytes, w);
      a1 += w * x1;
    }
    y[r] = finish<Load>(a0, a1, a, x, whole, cols);
  }
}

void gemv_any(const std::byte* rows, amk::DType dtype, int64_t count, int64_t cols, const float* x, float* y) {
  const unsigned char* p = reinterpret_cast<const unsigned char*>(rows);
  switch (dtype) {
    case amk::DType::F32:
      gemv_rows<LoadF32>(p, count, cols, x, y);
      break;
    case amk::DType::F16:
      gemv_rows<LoadF16>(p, count, cols, x, y);
      break;
    case amk::DType::BF16:
      gemv_rows<LoadBF16>(p, count, cols, x, y);
      break;
    case amk::DType::I8:
    case amk::DType::I32:
      __builtin_trap();  // not a weight dtype: import and lowering never produce one
  }
}

}  // namespace
