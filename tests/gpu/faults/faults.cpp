// $AMK_FAULTS = "3:crash,5:hang,8:exit": what a worker does in the n-th check of this process (from 1).
#include <atomic>
#include <cstdlib>
#include <sstream>

#include "server/tools/fault_injection.h"

namespace amk {
namespace {

std::string fault_of(int check) {
  const char* set = std::getenv("AMK_FAULTS");
  std::istringstream plan(set != nullptr ? set : "");
  for (std::string entry; std::getline(plan, entry, ',');) {
    const auto colon = entry.find(':');
    if (colon != std::string::npos && entry.substr(0, colon) == std::to_string(check)) return entry.substr(colon + 1);
  }
  return "";
}

}  // namespace

std::optional<std::function<std::string()>> fault_injection() {
  return [] {
    static std::atomic<int> checks{0};
    return fault_of(++checks);
  };
}

}  // namespace amk
