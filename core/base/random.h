// Counter-based and sequential pseudo-random numbers with the same bits on every machine and compiler
// (std:: distributions are not portable). Rng is not thread-safe; mix64 and at() are pure.
#pragma once

#include <cstdint>

namespace amk {

// splitmix64's finaliser (Steele, Lea, Flood 2014): a bijection of 64-bit words that passes BigCrush as a counter generator.
constexpr std::uint64_t mix64(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

class Rng {
 public:
  explicit constexpr Rng(std::uint64_t seed) : state_(mix64(seed)) {}
  constexpr std::uint64_t next() {
    const std::uint64_t value = mix64(state_);
    state_ += 0x9E3779B97F4A7C15ull;
    return value;
  }
  // Uniform in [0, n), n > 0; multiply-shift with rejection (Lemire 2019), exact.
  std::uint64_t below(std::uint64_t n) {
    U128 m = static_cast<U128>(next()) * n;
    auto low = static_cast<std::uint64_t>(m);
    if (low < n) {
      const std::uint64_t threshold = (0 - n) % n;
      while (low < threshold) {
        m = static_cast<U128>(next()) * n;
        low = static_cast<std::uint64_t>(m);
      }
    }
    return static_cast<std::uint64_t>(m >> 64);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }  // [0, 1)
  double normal();                                                            // mean 0, variance 1

 private:
  __extension__ using U128 = unsigned __int128;  // GCC and Clang on every 64-bit target
  std::uint64_t state_;
};

}  // namespace amk
