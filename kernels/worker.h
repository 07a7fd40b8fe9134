// The GPU worker: a process that serves the device halves of all families.
#pragma once

#include <filesystem>
#include <memory>

#include "kernels/evaluator/worker_link.h"

namespace amk {

// The worker's main: confines this process (evaluator/confine.h), then serves requests on `in` and `out` until `in` ends. A request's "family" names
// who answers; without one:
//   {"op": "probe", "gpu_ordinal"}                                a known-good program on a context of its own
//   {"op": "bandwidth", "gpu_ordinal", "cache", "facts"}          measured once per GPU -> {"read_bandwidth_gbs", "lasting"}
// One family at a time holds GPU memory. `cache` is made; it and its folder for temporary files are all that the worker may write. `faults`: obeys
// {"fault": …} of a check (programs for tests). Returns the exit status.
int run_gpu_worker(int in, int out, const std::filesystem::path& cache, bool faults);

// The same in this process: no limits and no isolation. For tests.
std::unique_ptr<WorkerLink> make_local_link();

}  // namespace amk
