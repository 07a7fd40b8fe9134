// Identifiers that cannot be guessed. Thread-safe.
#pragma once

#include <string>

namespace amk {

// random_hex(); without random bytes the program ends.
std::string random_id(int bytes = 8);

}  // namespace amk
