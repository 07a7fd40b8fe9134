#include "kernels/det_gemm/service.h"

#include <cstdlib>
#include <random>
#include <thread>

#include "core/base/json.h"
#include "kernels/det_gemm/workload_id.h"
#include "kernels/timed_verdict.h"

namespace amk::det_gemm {

Result<Message> GemmService::handle(const Message& request) {
  const std::string op = request.body.value("op", "");
  if (op == "open") return open(request.body);
  if (op != "check") return bad_field("op", op, "open, check");
  if (judge_ == nullptr) return fail(ErrorKind::InvalidArgument, "no workload is open in this worker");
  return check(request.body);
}

Result<Message> GemmService::open(const Json& body) {
  const std::string key = body.dump();
  if (key != key_) {
    judge_.reset();
    runner_.reset();
    key_.clear();
    AMK_TRY(resources, find_resources());
    AMK_TRY(problem, parse_workload(body.at("workload").get<std::string>(), {}));
    AMK_TRY(runner, Runner::open(body.at("gpu_ordinal").get<int>(), resources, body.at("cache").get<std::string>()));
    AMK_TRY(workload, GemmWorkload::create(problem, runner->target()));
    std::random_device device;  // no candidate can know the operands
    AMK_TRY(judge, GpuJudge::create(*runner, workload, std::uint64_t{device()} << 32 | device()));
    runner_ = std::move(runner);
    judge_ = std::make_unique<GpuJudge>(std::move(judge));
    key_ = key;
  }
  return Message{};
}

Result<Message> GemmService::check(const Json& body) {
  if (faults_) {
    const std::string fault = body.value("fault", "");
    if (fault == "crash") std::abort();
    if (fault == "exit") std::_Exit(9);
    if (fault == "hang") std::this_thread::sleep_for(std::chrono::hours(24));  // killed by the parent's limit
  }
  const auto other = body.find("incumbent");
  AMK_TRY(verdict, judge_->judge(body.at("config"), other != body.end() && !other->is_null() ? std::optional<Json>(*other) : std::nullopt));
  Message reply;
  reply.body = {{"verdict", to_json(verdict)}};
  if (const auto& timed = judge_->timed(); timed.timing) reply.body.update(timed_reply(*timed.timing, timed.wall_ratio, timed.other_processes));
  return reply;
}

}  // namespace amk::det_gemm
