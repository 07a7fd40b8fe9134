// Runs independent pieces of work on a few threads. The caller's thread takes part, so it works even where no thread can be started.
#pragma once

#include <cstdint>
#include <functional>

namespace amk::det_gemm {

// Calls body(i) once for each i in [0, count); `threads` ≤ 0 means one per processor. Returns when all are done.
void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t)>& body);

}  // namespace amk::det_gemm
