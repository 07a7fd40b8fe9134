#include "core/base/memory.h"

#include <malloc.h>

namespace amk {

void keep_little_memory() {
#ifdef __GLIBC__
  ::mallopt(M_ARENA_MAX, 4);
  // Fixed: by itself the threshold rises to the largest block that was ever freed, after which such blocks fragment an arena.
  ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 20);
#endif
}

bool give_back_memory(std::int64_t tolerated_bytes) {
#ifdef __GLIBC__
  if (static_cast<std::int64_t>(::mallinfo2().fordblks) <= tolerated_bytes) return false;
  ::malloc_trim(0);
  return true;
#else
  (void)tolerated_bytes;
  return false;
#endif
}

}  // namespace amk
