// What a long-lived process keeps of the memory that it no longer uses. Thread-safe.
#pragma once

#include <cstdint>

namespace amk {

// For main() of a daemon, before it has threads: few arenas, and large blocks straight from the kernel. glibc makes up to eight arenas a core, and
// each keeps what its busiest moment took: a daemon with 38 MB in use held 206 after three minutes of searches that run at once.
void keep_little_memory();

// Gives pages that are free inside the allocator back to the kernel when they are more than `tolerated_bytes`. Returns whether it did. Takes a few
// milliseconds a hundred megabytes.
bool give_back_memory(std::int64_t tolerated_bytes = 32 << 20);

}  // namespace amk
