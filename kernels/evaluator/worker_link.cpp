#include "kernels/evaluator/worker_link.h"

#include <csignal>
#include <optional>

#include "core/base/json.h"
#include "kernels/evaluator/cuda_abi.h"
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

bool is_cuda(const Error& error) { return error.data.is_object() && error.data.contains("code"); }

bool out_of_memory(const Error& error) { return is_cuda(error) && error.data.at("code") == static_cast<int>(cuda::abi::kOutOfMemory); }

// Signals that a program does not raise in itself when it goes wrong.
bool killed_from_outside(const Error& error) {
  if (!error.data.is_object()) return false;
  const auto signal = error.data.find("signal");
  if (signal == error.data.end() || !signal->is_number_integer()) return false;
  const int number = signal->get<int>();
  return number == SIGKILL || number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT || number == SIGPWR;
}

bool not_started(const Error& error) { return error.data.is_object() && error.data.contains("errno"); }

bool worker_died(const Error& error) { return error.data.is_object() && (error.data.contains("signal") || error.data.contains("exit")); }

// Of what happened on the GPU or to its worker; not of a request that was refused.
bool of_the_machine(const Error& error) {
  const bool cuda = is_cuda(error) && !out_of_memory(error) && (error.kind == ErrorKind::Internal || error.kind == ErrorKind::Unavailable);
  return error.kind == ErrorKind::Timeout || worker_died(error) || cuda;
}

// In a new worker. An error is a broken GPU's, or says why nothing could be found out.
Status probe(WorkerLink& link, int gpu_ordinal, const Error& first, const std::function<bool()>& stop) {
  link.restart();
  const auto ask = [&](bool) { return link.call({{"op", "probe"}, {"gpu_ordinal", gpu_ordinal}}, std::chrono::minutes(2), stop); };
  const auto answer = in_turns(link, ask);
  if (answer) return {};
  const Error& error = answer.error();
  if (error.kind == ErrorKind::Cancelled || worth_another_turn(error) || not_started(error)) return tl::unexpected<Error>(error);
  return fail(ErrorKind::Unavailable, "the GPU fails a known-good probe after this: " + first.message + " (probe: " + error.message + ")",
              broken_gpu(gpu_ordinal));
}

}  // namespace

std::unique_ptr<WorkerLink> make_process_link(std::vector<std::string> argv) { return std::make_unique<ProcessLink>(std::move(argv)); }

bool worth_another_turn(const Error& error) { return killed_from_outside(error) || out_of_memory(error); }

Result<CandidateFailure> blame_candidate(WorkerLink& link, int gpu_ordinal, const Error& error, const std::function<bool()>& stop) {
  if (!of_the_machine(error)) return tl::unexpected<Error>(error);
  AMK_CHECK(probe(link, gpu_ordinal, error, stop));
  const char* twice = killed_from_outside(error) ? ", in each of two turns" : "";
  return CandidateFailure{error.kind == ErrorKind::Timeout, error.message + twice + ". A known-good probe passed afterwards."};
}

Error without_candidate(WorkerLink& link, int gpu_ordinal, const Error& error, const std::function<bool()>& stop) {
  const bool unclear = of_the_machine(error) || error.kind == ErrorKind::Unavailable;
  if (!unclear || worth_another_turn(error) || not_started(error)) return error;
  if (const Status healthy = probe(link, gpu_ordinal, error, stop); !healthy) return healthy.error();
  return {ErrorKind::Unavailable, error.message + ". No candidate ran; a known-good probe passed afterwards.", error.data};
}

bool gpu_is_broken(const Error& error) { return error.kind == ErrorKind::Unavailable && error.data.is_object() && error.data.contains("broken_gpu"); }

Json broken_gpu(int gpu_ordinal) { return {{"broken_gpu", gpu_ordinal}}; }

}  // namespace amk
