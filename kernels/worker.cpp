#include "kernels/worker.h"

#include <cstdio>
#include <cstdlib>

#include "core/base/json.h"
#include "kernels/device_judge.h"
#include "kernels/evaluator/confine.h"
#include "kernels/evaluator/gpu_report.h"
#include "kernels/evaluator/probe.h"
#include "kernels/evaluator/worker_process.h"
#include "kernels/registry.h"

namespace amk {
namespace {

class Worker {
 public:
  explicit Worker(bool faults) : faults_(faults) {}

  Result<Message> handle(const Message& request) try {
    const std::string family = request.body.value("family", "");
    if (family.empty()) return own(request.body);
    if (service_ == nullptr || family != family_) {
      service_.reset();  // its GPU memory is needed
      for (const auto& known : kernel_families())
        if (known->name() == family) service_ = known->device_service(faults_);
      if (service_ == nullptr) return bad_field("family", family, "a kernel family that runs on GPUs");
      family_ = family;
    }
    return service_->handle(request);
  } catch (const Json::exception& e) {
    return fail(ErrorKind::InvalidArgument, std::string("a worker request is malformed: ") + e.what());
  }

 private:
  static Result<Message> own(const Json& body) {
    const std::string op = body.value("op", "");
    const int ordinal = body.value("gpu_ordinal", 0);
    Message reply;
    if (op == "probe") {
      AMK_TRY(context, cuda::Context::open(ordinal));
      AMK_CHECK(probe_gpu(context));
      reply.body = {{"healthy", true}};
      return reply;
    }
    if (op == "bandwidth") {
      AMK_TRY(gpus, gpu_devices());
      if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= gpus.size())
        return fail(ErrorKind::Unavailable, "there is no GPU " + std::to_string(ordinal));
      AMK_TRY(compiler, NvrtcCompiler::open());
      AMK_TRY(cache, BuildCache::open(body.at("cache").get<std::string>()));
      AMK_TRY(measured, read_bandwidth(gpus[static_cast<std::size_t>(ordinal)], body.at("facts").get<std::string>(), compiler, cache));
      reply.body = {{"read_bandwidth_gbs", measured.gbs}, {"lasting", measured.lasting}};
      return reply;
    }
    return bad_field("op", op, "probe, bandwidth; others need a family");
  }

  bool faults_;
  std::string family_;
  std::unique_ptr<DeviceService> service_;
};

class LocalLink final : public WorkerLink {
 public:
  Result<Message> call(const Json& request, std::chrono::milliseconds, const std::function<bool()>&) override {
    if (!worker_) worker_ = std::make_unique<Worker>(false);
    return worker_->handle({request, {}});
  }
  void restart() override { worker_.reset(); }

 private:
  std::unique_ptr<Worker> worker_;
};

}  // namespace

std::unique_ptr<WorkerLink> make_local_link() { return std::make_unique<LocalLink>(); }

int run_gpu_worker(int in, int out, const std::filesystem::path& cache, bool faults) {
  std::error_code code;
  std::filesystem::create_directories(cache / "tmp", code);
  // Where the compiler and the driver put what they would put into /tmp and the home folder.
  ::setenv("TMPDIR", (cache / "tmp").c_str(), 1);
  ::setenv("CUDA_CACHE_PATH", (cache / "driver").c_str(), 0);
  const Json confined = confine_worker({in, out}, {cache});
  if (confined.contains("why")) std::fprintf(stderr, "amk worker: not wholly confined: %s\n", confined["why"].get<std::string>().c_str());
  Worker worker(faults);
  return serve_worker(in, out, [&worker](const Message& request) { return worker.handle(request); });
}

}  // namespace amk
