// From a lowered program to what the device needs: the compilation (knobs and dimensions as -D), descriptor tables, memory sizes. Pure: no GPU.
#pragma once

#include <string>
#include <vector>

#include "core/program/program.h"
#include "core/schedule/config.h"
#include "kernels/evaluator/nvrtc.h"
#include "kernels/megakernel/device/layout.cuh"
#include "kernels/megakernel/gpu_layout.h"

namespace amk {

// What planning must know of the device.
struct DeviceLimits {
  std::string architecture;  // "sm_90a"
  int sm_major = 9;
  int sm_count = 0;
  std::int64_t smem_optin_bytes = 0;
  int max_threads_per_block = 1024;
};

// Where an activation storage lies in the arena; guard zones of kGuardBytes are before, between and after.
struct StoragePlace {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};
constexpr std::int64_t kGuardBytes = 256;

struct DevicePlan {
  CompileRequest request;
  WeightLayout layout = WeightLayout::Packed;
  NumericFormat format;
  int grid = 0;
  int threads = 0;
  int steps = 1;  // of a launch, at most
  std::int64_t shared_bytes = 0;
  std::int64_t activation_bytes = 0;
  std::vector<StoragePlace> storages;  // by StorageId; bytes 0 for storages that are not activations
  std::int64_t counter_count = 0;
  std::vector<amk_vm::QueueDesc> queues;
  std::vector<amk_vm::TaskDesc> tasks;
  std::vector<amk_vm::WaitDesc> waits;
  std::vector<amk_vm::StreamDesc> streams;
  std::vector<std::vector<TaskId>> task_ids;  // [sm][index in its queue], for reports
};

struct PlanOptions {
  int batch = 0;            // sequences of a launch; 0: as many as the model was opened for
  std::string instruction;  // one kind alone (core/program/lower_instruction.h); empty: the whole step
  bool trace = false;
  bool fault_hang = false;  // fault injection: the first task of SM 0 never signals
  // For racecheck, which does not understand a named barrier at which some warps only arrive (tests/gpu/megakernel/racecheck_test.cpp shows it): all
  // warps wait at those barriers. Stricter than the kernel as it runs in that one place, and slower.
  bool full_barriers = false;
  // kv_path ring: rows of a split from which on the ring brings them; 0: as measured best. 1 for tests with short contexts.
  int cache_ring_from = 0;
  // Attention and O in one instruction: at most so many rows of a head's cache in shared memory at a time; 0: as many as there is room for.
  int staged_rows = 0;
};

// `program` must be valid and lowered from `config`. Rejected ({"rule", "message", "witness"} in data) when it does not fit the device or the VM.
Result<DevicePlan> plan_device(const Program& program, const ScheduleConfig& config, const DeviceLimits& limits, const PlanOptions& options = {});
// What plan_device() refuses, for a third of the work and less: no tables are filled and no sources gathered. Only offsets beyond what a task's
// descriptor can address (64 GB of weights, 4 GB of activations) are not looked at.
Status check_device_fit(const Program& program, const ScheduleConfig& config, const DeviceLimits& limits);

}  // namespace amk
