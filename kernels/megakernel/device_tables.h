// A plan's tables: where activations lie, and the descriptors of tasks, waits and streams, queue by queue. Pure. Internal to kernels/megakernel.
#pragma once

#include <cstdint>

#include "kernels/megakernel/device_plan.h"
#include "kernels/megakernel/device_shapes.h"

namespace amk {

// Of the longest queues: how many tasks, and what a block keeps of the tables in shared memory. Rejected where a queue cannot be told to the device.
struct TableSize {
  std::uint32_t longest_queue = 1;
  std::int64_t bytes = 0;
};
Result<TableSize> measure_tables(const Program& program, const DeviceShapes& shapes);

// Fills a plan's storages and tables. Returns where this step's k and v rows lie (publish flagged), else 0. Rejected when an offset does not fit its
// descriptor.
Result<std::int64_t> make_tables(const PlanInput& in, const DeviceShapes& shapes, DevicePlan& plan);

}  // namespace amk
