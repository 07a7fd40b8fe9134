#include "kernels/evaluator/worker_process.h"
#include "kernels/megakernel/gpu_judge.h"
#include "kernels/megakernel/gpu_service.h"

namespace amk {
namespace {

class ProcessLink final : public WorkerLink {
 public:
  explicit ProcessLink(std::vector<std::string> argv) : argv_(std::move(argv)) {}
  Result<Message> call(const Json& request, std::chrono::milliseconds limit, const std::function<bool()>& stop) override {
    if (!worker_ || !worker_->alive()) {
      AMK_TRY(started, WorkerProcess::start(argv_));
      worker_.emplace(std::move(started));
    }
    return worker_->call(request, limit, stop);
  }
  void restart() override { worker_.reset(); }

 private:
  std::vector<std::string> argv_;
  std::optional<WorkerProcess> worker_;
};

// In this process: no limits and no isolation.
class LocalLink final : public WorkerLink {
 public:
  Result<Message> call(const Json& request, std::chrono::milliseconds, const std::function<bool()>&) override {
    if (!service_) service_ = std::make_unique<GpuService>();
    return service_->handle({request, {}});
  }
  void restart() override { service_.reset(); }

 private:
  std::unique_ptr<GpuService> service_;
};

}  // namespace

std::unique_ptr<WorkerLink> make_process_link(std::vector<std::string> argv) { return std::make_unique<ProcessLink>(std::move(argv)); }
std::unique_ptr<WorkerLink> make_local_link() { return std::make_unique<LocalLink>(); }

int run_gpu_worker(int in, int out, bool faults) {
  GpuService service(faults);
  return serve_worker(in, out, [&service](const Message& request) { return service.handle(request); });
}

}  // namespace amk
