// Tokens timed and traced.
#pragma once

#include <string>

#include "bench/decode/entry.h"

namespace amk::bench {

// Microseconds a token of positions [first, last), each token fed back on the device.
Result<double> time_tokens(GpuModel& model, Entry& e, int first, int last);

// The cache's rows [0, rows) again and again, up to `end`. Multiples of 16, so that the order of a row's pieces is its own.
Status repeat_rows(GpuModel& model, int rows, int end);

// One traced step: a line a task with its marks, in ns from the first, to a file.
Status trace(GpuModel& model, const Entry& e, int position, const std::string& path);

}  // namespace amk::bench
