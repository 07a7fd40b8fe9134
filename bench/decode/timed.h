// Tokens timed and traced.
#pragma once

#include <string>

#include "bench/decode/entry.h"

namespace amk::bench {

// Microseconds a token of positions [first, last), each token fed back on the device.
Result<double> time_tokens(GpuModel& model, Entry& e, int first, int last);

// The cache's rows [0, rows) again and again, up to `end`. Multiples of 16, so that the order of a row's pieces is its own.
Status repeat_rows(GpuModel& model, int rows, int end);

// So many traced steps of one position, one after the other: each to a file (PATH.tsv, of several PATH.N.tsv), a line a task with its marks, in ns
// from the first.
Status trace(GpuModel& model, const Entry& e, int position, int steps, const std::string& path);

}  // namespace amk::bench
