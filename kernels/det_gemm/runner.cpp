#include "kernels/det_gemm/runner.h"

#include <mutex>
#include <optional>

#include "core/base/parse_json.h"
#include "kernels/det_gemm/parallel.h"
#include "kernels/evaluator/device.h"

namespace amk::det_gemm {

Result<std::unique_ptr<Runner>> Runner::open(int ordinal, const Resources& resources, const std::filesystem::path& cache_folder) {
  AMK_TRY(devices, gpu_devices());
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= devices.size()) {
    return bad_field("gpu", ordinal, "0 to " + std::to_string(devices.size() - 1) + ", the GPUs of this machine");
  }
  AMK_TRY(context, cuda::Context::open(ordinal));
  AMK_TRY(cache, BuildCache::open(cache_folder));
  AMK_TRY(compiler, NvrtcCompiler::open());
  std::unique_ptr<Runner> runner(new Runner(std::move(context), std::move(cache), std::move(compiler)));
  runner->resources_ = resources;
  runner->target_ = local_target(devices[static_cast<std::size_t>(ordinal)], resources.config() / "gpus");
  runner->uuid_ = devices[static_cast<std::size_t>(ordinal)].uuid;
  AMK_TRY(stream, cuda::Stream::create());
  runner->stream_ = std::move(stream);
  return runner;
}

Result<const CompiledGemm*> Runner::compile(const Plan& plan) {
  std::string key = canonical_dump(to_json(plan));  // the shape and the config; the rest is how the caller's buffers lie
  for (const std::int64_t part : {plan.storage.stride_x, plan.storage.stride_y, plan.storage.stride_out, plan.storage.align_x, plan.storage.align_y,
                                  plan.storage.align_out, plan.storage.align_total}) {
    key += "/" + std::to_string(part);
  }
  if (const auto found = kernels_.find(key); found != kernels_.end()) return found->second.get();
  AMK_TRY(request, compile_request(plan, resources_.kernels()));
  AMK_TRY(built, cache_.build(compiler_, request));
  AMK_TRY(loaded, CompiledGemm::load(plan, built.kernel.cubin, target_.sm_count));
  const auto [at, inserted] = kernels_.emplace(key, std::make_unique<CompiledGemm>(std::move(loaded)));
  return at->second.get();
}

Status Runner::prebuild(std::span<const Plan> plans, const Resources& resources, const std::filesystem::path& cache_folder, int threads) {
  AMK_TRY(cache, BuildCache::open(cache_folder));
  AMK_TRY(compiler, NvrtcCompiler::open());
  std::mutex mutex;
  std::optional<Error> error;
  parallel_for(static_cast<std::int64_t>(plans.size()), threads, [&](std::int64_t i) {
    auto request = compile_request(plans[static_cast<std::size_t>(i)], resources.kernels());
    std::optional<Error> mine;
    if (!request)
      mine = request.error();
    else if (auto built = cache.build(compiler, *request); !built)
      mine = built.error();
    const std::lock_guard lock(mutex);
    if (mine && !error) error = mine;
  });
  if (error) return tl::unexpected<Error>(*error);
  return {};
}

Result<CompileRequest> Runner::bare_request(const std::string& source) const {
  Plan plan;
  plan.source = source;
  plan.architecture = target_.sm_major == 9 ? "sm_90a" : "sm_" + std::to_string(target_.sm_major) + std::to_string(target_.sm_minor);
  return compile_request(plan, resources_.kernels());
}

Result<cuda::Function> Runner::helper_request(const std::string& key, CompileRequest request, const std::string& kernel,
                                              const std::vector<std::string>& options) {
  if (helpers_.find(key) == helpers_.end()) {
    request.options.insert(request.options.end(), options.begin(), options.end());
    AMK_TRY(built, cache_.build(compiler_, request));
    AMK_TRY(module, cuda::Module::load(built.kernel.cubin));
    helpers_.emplace(key, std::move(module));
  }
  return helpers_.at(key).function(kernel);
}

Result<cuda::Function> Runner::helper(const std::string& source, const std::string& kernel, const std::vector<std::string>& options) {
  std::string key = source;
  for (const std::string& option : options) key += " " + option;
  AMK_TRY(request, bare_request(source));
  return helper_request(key, std::move(request), kernel, options);
}

Result<cuda::Function> Runner::helper_text(const std::string& name, const std::string& text, const std::string& kernel,
                                           const std::vector<std::string>& options) {
  std::string key = name + " text " + text;
  for (const std::string& option : options) key += " " + option;
  AMK_TRY(request, bare_request("fill.cu"));
  request.name = name;
  request.source = text;
  return helper_request(key, std::move(request), kernel, options);
}

}  // namespace amk::det_gemm
