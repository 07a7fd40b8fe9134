#include "kernels/megakernel/gpu_model.h"

#include <algorithm>

#include "core/program/lower_instruction.h"
#include "core/program/validator.h"

namespace amk {

DeviceLimits limits_of(const GpuDevice& device) {
  return {device.architecture(), device.sm_major, device.sm_count, device.smem_optin_bytes, device.max_threads_per_block};
}

DeviceLimits limits_of(const GpuTarget& target) {
  constexpr int kMaxThreadsPerBlock = 1024;  // of every compute capability so far
  return {architecture_name(target.sm_major, target.sm_minor), target.sm_major, target.sm_count, target.smem_optin_bytes, kMaxThreadsPerBlock};
}

Result<BuiltCandidate> plan_candidate(const ModelSpec& spec, const ScheduleConfig& config, const DeviceLimits& limits, int max_seq,
                                      const PlanOptions& options) {
  LoweringTarget target;
  target.sm_count = limits.sm_count;
  target.smem_optin_bytes = limits.smem_optin_bytes;
  target.max_seq = max_seq;
  target.batch = std::max(1, options.batch);
  const NumericFormat format = gpu_format(spec.dtype);
  AMK_TRY(program,
          options.instruction.empty() ? lower(spec, config, target, format) : lower_instruction(spec, options.instruction, config, target, format));
  const Validation validation = validate(program);
  if (validation.rejection) {
    const Rejection& r = *validation.rejection;
    return fail(ErrorKind::Rejected, r.message, {{"rule", r.rule}, {"message", r.message}, {"witness", r.witness}});
  }
  return plan_proved(std::make_shared<const Program>(std::move(program)), config, limits, options);
}

Result<BuiltCandidate> plan_proved(std::shared_ptr<const Program> program, const ScheduleConfig& config, const DeviceLimits& limits,
                                   const PlanOptions& options) {
  BuiltCandidate out;
  out.config = config;
  out.program = std::move(program);
  AMK_TRY(plan, plan_device(*out.program, config, limits, options));
  out.plan = std::move(plan);
  return out;
}

Status compile_candidate(BuiltCandidate& candidate, const Compiler& compiler, const BuildCache& cache) {
  AMK_TRY(built, cache.build(compiler, candidate.plan.request));
  candidate.kernel = std::move(built.kernel);
  candidate.build_ms = built.build_ms;
  candidate.cached = built.cached;
  return {};
}

Result<BuiltCandidate> build_candidate(const ModelSpec& spec, const ScheduleConfig& config, const DeviceLimits& limits, int max_seq,
                                       const Compiler& compiler, const BuildCache& cache, const PlanOptions& options) {
  AMK_TRY(out, plan_candidate(spec, config, limits, max_seq, options));
  AMK_CHECK(compile_candidate(out, compiler, cache));
  return out;
}

Result<std::unique_ptr<GpuModel>> GpuModel::open(const GpuDevice& device, std::shared_ptr<const Weights> weights, int max_seq,
                                                 const std::filesystem::path& cache_folder, int batch) {
  if (!device.cooperative_launch) return fail(ErrorKind::Unavailable, device.product + " has no cooperative launch");
  if (device.sm_major < 8) return fail(ErrorKind::Unavailable, device.product + " is older than compute capability 8.0");
  AMK_TRY(context, cuda::Context::open(device.ordinal));
  AMK_TRY(stream, cuda::Stream::create());
  AMK_TRY(compiler, NvrtcCompiler::open());
  AMK_TRY(cache, BuildCache::open(cache_folder));
  std::unique_ptr<GpuModel> model(new GpuModel(device, std::move(context), std::move(stream), std::move(weights), compiler, std::move(cache)));
  model->max_seq_ = max_seq;
  model->batch_ = batch;
  AMK_TRY(sequence, DeviceSequence::create(model->spec(), gpu_format(model->spec().dtype), max_seq, model->stream_, batch));
  model->sequence_ = std::move(sequence);
  return model;
}

Result<BuiltCandidate> GpuModel::build(const ScheduleConfig& config, const PlanOptions& options) const {
  PlanOptions own = options;
  if (own.batch == 0) own.batch = batch_;
  return build_candidate(spec(), config, limits_of(device_), max_seq_, compiler_, cache_, own);
}

Result<const DeviceWeights*> GpuModel::layout_weights(WeightLayout layout) {
  auto found = layouts_.find(layout);
  if (found == layouts_.end()) {
    AMK_TRY(uploaded, DeviceWeights::upload(*weights_, layout, compiler_, cache_, device_.architecture(), stream_));
    found = layouts_.emplace(layout, std::move(uploaded)).first;
  }
  return &found->second;
}

Result<DeviceProgram> GpuModel::load(const BuiltCandidate& candidate) {
  AMK_TRY(uploaded, layout_weights(candidate.plan.layout));
  (void)uploaded;
  AMK_CHECK(sequence_.hold_steps(candidate.plan.steps, stream_));
  return DeviceProgram::create(candidate.program, candidate.plan, candidate.kernel, context_, stream_);
}

Status GpuModel::enqueue(DeviceProgram& program, const StepOptions& options) {
  AMK_TRY(weights, layout_weights(program.plan().layout));
  return program.step(*weights, sequence_, options, stream_);
}

Status GpuModel::run(DeviceProgram& program, const StepOptions& options) {
  AMK_CHECK(enqueue(program, options));
  return program.check(stream_);
}

}  // namespace amk
