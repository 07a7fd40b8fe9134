#include "kernels/evaluator/worker_link.h"

#include <optional>

#include "core/base/json.h"
#include "kernels/evaluator/worker_process.h"

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

bool is_candidates(const Error& error) {
  if (error.kind == ErrorKind::Timeout) return true;
  if (!error.data.is_object()) return false;
  const bool worker_died = error.data.contains("signal") || error.data.contains("exit");
  const bool cuda_error = error.kind == ErrorKind::Internal && error.data.contains("code");
  return worker_died || cuda_error;
}

}  // namespace

std::unique_ptr<WorkerLink> make_process_link(std::vector<std::string> argv) { return std::make_unique<ProcessLink>(std::move(argv)); }

Result<CandidateFailure> blame_candidate(WorkerLink& link, int gpu_ordinal, const Error& error, const std::function<bool()>& stop) {
  if (!is_candidates(error)) return tl::unexpected<Error>(error);
  link.restart();
  const auto probe = link.call({{"op", "probe"}, {"gpu_ordinal", gpu_ordinal}}, std::chrono::minutes(2), stop);
  if (!probe) {
    if (probe.error().kind == ErrorKind::Cancelled) return tl::unexpected<Error>(probe.error());
    return fail(ErrorKind::Unavailable, "the GPU fails a known-good probe after this: " + error.message + " (probe: " + probe.error().message + ")",
                {{"gpu_ordinal", gpu_ordinal}, {"first", error.message}});
  }
  return CandidateFailure{error.kind == ErrorKind::Timeout, error.message + ". A known-good probe passed afterwards."};
}

}  // namespace amk
