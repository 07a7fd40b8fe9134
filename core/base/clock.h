// Time as an interface, so that budgets and leases can be tested without waiting. Implementations are thread-safe.
#pragma once

#include <cstdint>
#include <memory>

namespace amk {

class Clock {
 public:
  virtual ~Clock() = default;
  // Time since boot, suspend included (CLOCK_BOOTTIME): budgets and leases use this one; wall-clock steps do not move it.
  virtual std::int64_t boot_us() const = 0;
  // Wall time since 1970 UTC: for display only.
  virtual std::int64_t wall_us() const = 0;
};

const Clock& system_clock();

class FakeClock final : public Clock {
 public:
  std::int64_t boot_us() const override { return boot; }
  std::int64_t wall_us() const override { return wall; }
  void advance_us(std::int64_t us) {
    boot += us;
    wall += us;
  }
  std::int64_t boot = 0;
  std::int64_t wall = 1'700'000'000'000'000;
};

}  // namespace amk
