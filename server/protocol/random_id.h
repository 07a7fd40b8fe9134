// Identifiers that cannot be guessed. Thread-safe.
#pragma once

#include <string>

namespace amk {

// `bytes` random bytes from the kernel as lowercase hex digits.
std::string random_id(int bytes = 8);

}  // namespace amk
