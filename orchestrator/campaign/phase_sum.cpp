#include "orchestrator/campaign/phase_sum.h"

#include <algorithm>

#include "core/base/json.h"

namespace amk {

void add_phases(const Json& phases, std::int64_t duration_us, std::map<std::string, double>& sum_s) {
  double named_us = 0;
  bool complete = false;  // whoever measured named the rest, too; rows of before do not
  if (phases.is_object()) {
    for (const auto& [name, us] : phases.items())
      if (us.is_number()) sum_s[name.substr(0, name.rfind("_us"))] += us.get<double>() / 1e6, named_us += us.get<double>();
    complete = phases.contains("other_us");
  }
  if (!complete) sum_s[named_us > 0 ? "other" : "evaluation"] += std::max(0.0, static_cast<double>(duration_us) - named_us) / 1e6;
}

}  // namespace amk
