#include "tests/gpu/megakernel/build_all.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace amk::gpu_test {

void build_all(const GpuModel& model, const std::vector<Build>& builds) {
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < builds.size(); i = next++) (void)model.build(builds[i].config, builds[i].options);
    });
}

}  // namespace amk::gpu_test
