// The parent's half against a worker that is played: what it is asked, and what becomes of its answers and its deaths.
#include "kernels/det_gemm/remote_judge.h"

#include <doctest/doctest.h>

#include "core/base/json.h"
#include "kernels/det_gemm/workload.h"
#include "kernels/det_gemm/workload_id.h"
#include "kernels/evaluator/nvrtc.h"
#include "tests/support/temp_folder.h"

using namespace amk;
using namespace amk::det_gemm;

namespace {

struct FakeLink final : WorkerLink {
  std::vector<Json> requests;
  std::function<Result<Message>(const Json&)> answer;
  int restarts = 0;
  Result<Message> call(const Json& request, std::chrono::milliseconds, const std::function<bool()>&) override {
    requests.push_back(request);
    return answer(request);
  }
  void restart() override { ++restarts; }
};

std::shared_ptr<const GemmWorkload> workload() {
  const auto target = load_gpu_target("h100", std::filesystem::path(AMK_SOURCE_DIR) / "config" / "gpus");
  const auto problem = parse_workload("det_gemm:fwd:512x1024x1024", {});
  REQUIRE(target);
  REQUIRE(problem);
  return GemmWorkload::create(*problem, *target).value();
}

struct Bed {
  Bed() {
    device.uuid = "GPU-test-" + folder.path.filename().string();
    options.cache_folder = folder.path / "kernels";
  }
  test::TempFolder folder;
  GpuDevice device;
  DeviceJudgeOptions options;
  FakeLink link;
};

}  // namespace

TEST_CASE("a worker's verdict comes back with the device's name; requests name family, workload and both configs") {
  if (!Nvrtc::open()) return;
  Bed bed;
  const auto w = workload();
  const Json config = w->default_config();
  bed.link.answer = [&](const Json& request) -> Result<Message> {
    Message reply;
    if (request.at("op") == "check") {
      Verdict v;
      v.workload = w->id();
      v.gpu = w->target().name;
      v.regime = w->regime();
      v.config = request.at("config");
      v.schedule_id = w->schedule_id(v.config);
      v.status = VerdictStatus::Ok;
      v.valid = v.correct = true;
      v.correctness = Correctness{};
      v.latency_us = 12.5;
      v.latency_kind = LatencyKind::MeasuredGpu;
      reply.body = {{"verdict", to_json(v)}};
    }
    return reply;
  };
  RemoteJudge judge(bed.device, bed.options, bed.link);
  const auto verdict = judge.judge(*w, config, std::nullopt, {});
  REQUIRE_MESSAGE(verdict, verdict.error().message);
  CHECK(verdict->device == bed.device.uuid);
  CHECK(verdict->latency_us == 12.5);
  REQUIRE(bed.link.requests.size() == 2);
  CHECK(bed.link.requests[0].at("op") == "open");
  CHECK(bed.link.requests[0].at("workload") == "det_gemm:fwd:512x1024x1024");
  CHECK(bed.link.requests[1].at("family") == "det_gemm");
  CHECK(bed.link.requests[1].at("config") == config);
  CHECK(bed.link.requests[1].at("incumbent").is_null());
}

TEST_CASE("a worker that dies in a candidate's turn: crash when the probe passes, unavailable when it does not") {
  if (!Nvrtc::open()) return;
  Bed bed;
  const auto w = workload();
  bool healthy = true;
  bed.link.answer = [&](const Json& request) -> Result<Message> {
    if (request.at("op") == "check") return fail(ErrorKind::Unavailable, "the GPU worker is gone: killed by Aborted", {{"signal", 6}});
    if (request.at("op") == "probe" && !healthy) return fail(ErrorKind::Unavailable, "no answer");
    return Message{};
  };
  RemoteJudge judge(bed.device, bed.options, bed.link);
  const auto verdict = judge.judge(*w, w->default_config(), std::nullopt, {});
  REQUIRE_MESSAGE(verdict, verdict.error().message);
  CHECK(verdict->status == VerdictStatus::Crash);
  CHECK(!verdict->latency_us);
  CHECK(bed.link.restarts == 1);
  healthy = false;
  const auto broken = judge.judge(*w, w->default_config(), std::nullopt, {});
  REQUIRE(!broken);
  CHECK(broken.error().kind == ErrorKind::Unavailable);
}
