// Faults on purpose, so that recording and recovery can be tested with whole processes. Which answer is linked decides: amk links no_faults.cpp,
// the test program amk_faults (tests/gpu/faults) links one that reads $AMK_FAULTS.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace amk {

// Empty: this program has no fault injection. Else DeviceJudgeOptions::next_fault.
std::optional<std::function<std::string()>> fault_injection();

}  // namespace amk
