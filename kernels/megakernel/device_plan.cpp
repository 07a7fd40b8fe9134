#include "kernels/megakernel/device_plan.h"

#include "kernels/megakernel/device/layout.cuh"
#include "kernels/megakernel/device_compile.h"
#include "kernels/megakernel/device_shapes.h"
#include "kernels/megakernel/device_tables.h"

namespace amk {

static_assert(kMaxBatch == amk_vm::kMaxSequences);

Result<DevicePlan> plan_device(const Program& program, const ScheduleConfig& config, const DeviceLimits& limits, const PlanOptions& options) {
  const PlanInput in{program, config, limits, options};
  AMK_TRY(shapes, shape_device(in));
  DevicePlan plan;
  plan.layout = config.kernel.weight_layout;
  plan.format = shapes.format;
  plan.grid = program.sm_count;
  plan.threads = shapes.threads;
  plan.steps = config.kernel.tokens_per_launch;
  plan.shared_bytes = shapes.shared_bytes;
  plan.counter_count = static_cast<std::int64_t>(program.counters.size());
  AMK_TRY(kv_now, make_tables(in, shapes, plan));
  plan.request = compile_request(in, shapes, kv_now);
  return plan;
}

Status check_device_fit(const Program& program, const ScheduleConfig& config, const DeviceLimits& limits) {
  const PlanOptions options;
  AMK_CHECK(shape_device({program, config, limits, options}));
  return {};
}

}  // namespace amk
