#include "kernels/det_gemm/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace amk::det_gemm {

void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t)>& body) {
  if (threads <= 0) threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    for (std::int64_t i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::jthread> helpers;
  for (int i = 1; i < threads && i < count; ++i) {
    try {
      helpers.emplace_back(work);
    } catch (const std::exception&) {  // thread limit reached: fewer helpers, same result
      break;
    }
  }
  work();
}

}  // namespace amk::det_gemm
