// Where the time of one experiment goes. One thread at a time.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>

#include "core/base/json.h"

namespace amk {

class PhaseClock {
 public:
  // From here on time is `phase`'s, until the next one. An empty name: nobody's.
  void enter(std::string_view phase) {
    const auto now = std::chrono::steady_clock::now();
    if (!phase_.empty()) spent_[phase_] += std::chrono::duration_cast<std::chrono::microseconds>(now - since_).count();
    phase_ = phase;
    since_ = now;
  }
  // {"<phase>_us": microseconds} of the phases entered so far; ends the current one.
  Json take() {
    enter("");
    Json out = Json::object();
    for (const auto& [name, us] : spent_) out[name + "_us"] = us;
    return out;
  }

 private:
  std::map<std::string, std::int64_t> spent_;
  std::string phase_;
  std::chrono::steady_clock::time_point since_{};
};

}  // namespace amk
