// What the tests of this program do with a config: build it, run it, hold it to the oracle or to itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/evaluator/cuda_runtime.h"
#include "kernels/megakernel/gpu_model.h"
#include "tests/gpu/megakernel/checks.h"

namespace amk::gpu_test {

// Of a config's JSON text: O merges attention's partials.
inline const std::string kCombineInO =
    R"("fusion_grouping":[["norm","qkv","rope","kv_append"],["attention"],["combine","o_proj","add"],["norm","gate_up","silu_mul"],["down","add"],["norm","lm_head","argmax"]])";
inline const std::string kCombined = "{" + kCombineInO + "}";
inline const char* const kRowMajor = R"({"kernel_knobs":{"gemv_path":"fma","weight_layout":"row"}})";

std::vector<int> draw(const ModelSpec& spec, int count, std::uint64_t seed);
Result<DeviceProgram> program_of(GpuModel& model, const ScheduleConfig& config, const PlanOptions& options = {});
Result<cuda::Module> module_of(const Bench& bench, const char* name, const char* source);  // of a test's own; a context must be current
PlanOptions full_barriers();                                                               // for racecheck
bool keeps_to_buffers(const GpuModel& model, const DeviceProgram& program);

// nullptr: it could not be made, which is a failed check.
std::shared_ptr<const GpuReference> reference_of(const GpuModel& model, int max_seq, Checks& checks);

// The gate on one program: poisoned runs, twice, against the oracle and native arithmetic.
void gate(GpuModel& model, const GpuReference& reference, const ScheduleConfig& config, const PlanOptions& options, const std::string& name,
          Checks& checks);
void gate(GpuModel& model, const GpuReference& reference, const ScheduleConfig& config, const std::string& name, Checks& checks);

// `tokens` decoded twice from one first token, each fed back on the device: the same ids, and the same bits of the last logits, in which every row of
// the cache has its part. False: the machine cannot go on.
bool decode_twice(GpuModel& model, const std::string& label, const ScheduleConfig& config, int tokens, Checks& checks);

// Every output of every token is written and finite. Short texts only: it is for compute-sanitizer, under which a step takes seconds.
void writes_all(GpuModel& model, const ScheduleConfig& config, const PlanOptions& options, const std::vector<int>& tokens, const std::string& name,
                Checks& checks);

}  // namespace amk::gpu_test
