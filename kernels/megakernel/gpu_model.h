// One model on one GPU: its weights (one copy per layout), its sequences, and candidates made from configs. Owns the context's use on this
// thread; not thread-safe.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "core/model/weights.h"
#include "core/schedule/config.h"
#include "kernels/evaluator/build_cache.h"
#include "kernels/evaluator/device.h"
#include "kernels/megakernel/device_program.h"

namespace amk {

// What can be built without a GPU: lowered, validated, planned and compiled.
struct BuiltCandidate {
  ScheduleConfig config;
  std::shared_ptr<const Program> program;
  DevicePlan plan;
  CompiledKernel kernel;
  double build_ms = 0;
  bool cached = false;
};

DeviceLimits limits_of(const GpuDevice& device);
DeviceLimits limits_of(const GpuTarget& target);  // a GPU that is not here

// Lowers, validates, plans: milliseconds. Rejected: the schedule's fault, {"rule", "message", "witness"} in data.
Result<BuiltCandidate> plan_candidate(const ModelSpec& spec, const ScheduleConfig& config, const DeviceLimits& limits, int max_seq,
                                      const PlanOptions& options = {});
// Of a program that this process has lowered for such a device and proved: plans it.
Result<BuiltCandidate> plan_proved(std::shared_ptr<const Program> program, const ScheduleConfig& config, const DeviceLimits& limits,
                                   const PlanOptions& options = {});
// Compiles what was planned: seconds, when the cache does not have it.
Status compile_candidate(BuiltCandidate& candidate, const Compiler& compiler, const BuildCache& cache);
// Both.
Result<BuiltCandidate> build_candidate(const ModelSpec& spec, const ScheduleConfig& config, const DeviceLimits& limits, int max_seq,
                                       const Compiler& compiler, const BuildCache& cache, const PlanOptions& options = {});

class GpuModel {
 public:
  static Result<std::unique_ptr<GpuModel>> open(const GpuDevice& device, std::shared_ptr<const Weights> weights, int max_seq,
                                                const std::filesystem::path& cache_folder, int batch = 1);

  Result<BuiltCandidate> build(const ScheduleConfig& config, const PlanOptions& options = {}) const;
  Result<DeviceProgram> load(const BuiltCandidate& candidate);  // uploads the layout's weights at first use

  // One step, waited for.
  Status run(DeviceProgram& program, const StepOptions& options);
  // Enqueues a step without waiting.
  Status enqueue(DeviceProgram& program, const StepOptions& options);

  const GpuDevice& device() const { return device_; }
  const ModelSpec& spec() const { return weights_->spec(); }
  const std::shared_ptr<const Weights>& weights() const { return weights_; }
  const cuda::Context& context() const { return context_; }
  const cuda::Stream& stream() const { return stream_; }
  const DeviceSequence& sequence() const { return sequence_; }
  Result<const DeviceWeights*> layout_weights(WeightLayout layout);
  // Frees the others; a layout that is wanted again is uploaded again.
  void drop_layouts_but(const std::set<WeightLayout>& kept) {
    std::erase_if(layouts_, [&](const auto& held) { return kept.count(held.first) == 0; });
  }

 private:
  GpuModel(const GpuDevice& device, cuda::Context context, cuda::Stream stream, std::shared_ptr<const Weights> weights, NvrtcCompiler compiler,
           BuildCache cache)
      : device_(device),
        context_(std::move(context)),
        stream_(std::move(stream)),
        weights_(std::move(weights)),
        compiler_(compiler),
        cache_(std::move(cache)) {}

  GpuDevice device_;
  cuda::Context context_;
  cuda::Stream stream_;
  std::shared_ptr<const Weights> weights_;
  NvrtcCompiler compiler_;
  BuildCache cache_;
  int max_seq_ = 0, batch_ = 1;
  DeviceSequence sequence_;
  std::map<WeightLayout, DeviceWeights> layouts_;
};

}  // namespace amk
