// Vector clocks, one component an SM: the number of that SM's tasks known to have finished. Internal to core/program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace amk::validation {

// A task as the order sees it: the `order`-th (from 1) to run on its SM, counting on from step to step.
struct Event {
  std::int32_t sm = 0;
  std::int32_t order = 0;
};

inline bool happens_before(Event event, const std::int32_t* clock) { return clock[event.sm] >= event.order; }

inline void join(std::int32_t* into, const std::int32_t* from, std::size_t sms) {
  for (std::size_t s = 0; s < sms; ++s) into[s] = into[s] < from[s] ? from[s] : into[s];
}

// Everything in `needed` is known to `clock`. Without early exit, so that it vectorises: the answer is nearly always yes.
inline bool covers(const std::int32_t* clock, const std::int32_t* needed, std::size_t sms) {
  std::int32_t missing = 0;
  for (std::size_t s = 0; s < sms; ++s) missing |= static_cast<std::int32_t>(needed[s] > clock[s]);
  return missing == 0;
}

// Clocks by index, zero when allocated; freed ones are used again.
class ClockPool {
 public:
  explicit ClockPool(std::size_t sms) : sms_(sms) {}
  std::int32_t allocate() {
    if (!free_.empty()) {
      const std::int32_t index = free_.back();
      free_.pop_back();
      std::int32_t* clock = at(index);
      for (std::size_t s = 0; s < sms_; ++s) clock[s] = 0;
      return index;
    }
    const auto index = static_cast<std::int32_t>(data_.size() / sms_);
    data_.resize(data_.size() + sms_, 0);
    return index;
  }
  void release(std::int32_t index) { free_.push_back(index); }
  std::int32_t* at(std::int32_t index) { return data_.data() + static_cast<std::size_t>(index) * sms_; }
  const std::int32_t* at(std::int32_t index) const { return data_.data() + static_cast<std::size_t>(index) * sms_; }
  std::size_t sms() const { return sms_; }

 private:
  std::size_t sms_;
  std::vector<std::int32_t> data_;
  std::vector<std::int32_t> free_;
};

}  // namespace amk::validation
