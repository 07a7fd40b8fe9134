#include "core/base/clock.h"

#include <time.h>

namespace amk {
namespace {

std::int64_t read_us(clockid_t id) {
  timespec ts{};
  ::clock_gettime(id, &ts);
  return std::int64_t{ts.tv_sec} * 1'000'000 + ts.tv_nsec / 1'000;
}

class SystemClock final : public Clock {
 public:
  std::int64_t boot_us() const override { return read_us(CLOCK_BOOTTIME); }
  std::int64_t wall_us() const override { return read_us(CLOCK_REALTIME); }
};

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

}  // namespace amk
