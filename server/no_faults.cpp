#include "server/tools/fault_injection.h"

namespace amk {

std::optional<std::function<std::string()>> fault_injection() { return std::nullopt; }

}  // namespace amk
