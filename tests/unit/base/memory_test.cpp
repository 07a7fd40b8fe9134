#include "core/base/memory.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <thread>
#include <vector>

using namespace amk;

// The sanitizers' allocators keep what is freed on purpose.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

TEST_CASE("free pages between blocks that stay are given back, of the arenas of other threads as well, once they are many") {
  keep_little_memory();
  std::vector<std::unique_ptr<char[]>> stays;
  const auto work = [&stays] {
    std::vector<std::unique_ptr<char[]>> goes;
    for (int i = 0; i < 40'000; ++i) {
      goes.push_back(std::make_unique<char[]>(2000));  // zeroed, so resident
      if (i % 100 == 0) stays.push_back(std::make_unique<char[]>(2000));
    }
  };
  std::thread(work).join();
  work();
  const std::int64_t before = resident_bytes();
  CHECK_FALSE(give_back_memory(std::int64_t{1} << 40));
  CHECK(give_back_memory(32 << 20));
  CHECK(resident_bytes() < before - (100 << 20));  // of the 160 MB that went
  CHECK_FALSE(stays.empty());
}
#endif
