// Text that cannot be guessed. Thread-safe.
#pragma once

#include <string>

#include "core/base/error.h"

namespace amk {

// `bytes` bytes of the kernel's random generator as lowercase hex digits.
Result<std::string> random_hex(int bytes);

}  // namespace amk
