// The parent's half against a worker that is played: what it is asked, and what becomes of its answers and its deaths.
#include "kernels/det_gemm/remote_judge.h"

#include <doctest/doctest.h>

#include <thread>

#include "core/base/json.h"
#include "kernels/det_gemm/workload.h"
#include "kernels/det_gemm/workload_id.h"
#include "kernels/evaluator/clock.h"
#include "tests/support/needs.h"
#include "tests/support/temp_folder.h"

using namespace amk;
using namespace amk::det_gemm;
using amk::test::needs_nvrtc;

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
    options.lock_folder = folder.path;
  }
  amk::test::TempFolder folder;
  GpuDevice device;
  DeviceJudgeOptions options;
  FakeLink link;
};

}  // namespace

namespace {

// 8 rounds of two samples of 600 us, of an incumbent of 660 us: the floor of 512x1024x1024 on an H100 is a few microseconds.
Json honest_reply(const GemmWorkload& w, const Json& request) {
  const bool incumbent = !request.at("incumbent").is_null();
  Verdict v;
  v.workload = w.id();
  v.gpu = w.target().name;
  v.regime = w.regime();
  v.config = request.at("config");
  v.schedule_id = w.schedule_id(v.config);
  v.status = VerdictStatus::Ok;
  v.valid = v.correct = true;
  v.correctness = Correctness{};
  v.latency_us = 600;
  v.latency_kind = LatencyKind::MeasuredGpu;
  amk::Timing t;
  t.candidate_us.assign(16, 600);
  if (incumbent) t.incumbent_us.assign(16, 660);
  t.rounds = 8;
  Json timing = to_json(t);
  for (const char* summary : {"latency_us", "mad_us", "incumbent_latency_us", "decision"}) timing.erase(summary);
  return {{"verdict", to_json(v)}, {"timing", timing}, {"wall_ratio", 1.02}, {"other_processes", 0}};
}

// An honest worker whose replies `tell` changes; they take their time. Both are used as long as the answers are.
std::function<Result<Message>(const Json&)> honest_but_for(const GemmWorkload& w, const std::function<void(Json&)>& tell) {
  return [&](const Json& request) -> Result<Message> {
    Message reply;
    if (request.at("op") == "check") {
      reply.body = honest_reply(w, request);
      tell(reply.body);
      std::this_thread::sleep_for(std::chrono::milliseconds(22));
    }
    return reply;
  };
}

}  // namespace

TEST_CASE("a worker's verdict comes back with the device's name, timed by its samples; requests name family, workload and both configs" *
          needs_nvrtc()) {
  Bed bed;
  const auto w = workload();
  const Json config = w->default_config();
  Json incumbent = config;
  incumbent["stages"] = config.at("stages").get<int>() - 1;
  bed.link.answer = [&](const Json& request) -> Result<Message> {
    Message reply;
    if (request.at("op") == "check") {
      reply.body = honest_reply(*w, request);
      std::this_thread::sleep_for(std::chrono::milliseconds(22));  // 16 of 600 us and 16 of 660 us take 20.2 ms
    }
    return reply;
  };
  RemoteJudge judge(bed.device, bed.options, bed.link);
  const auto verdict = judge.judge(*w, config, std::nullopt, {});
  REQUIRE_MESSAGE(verdict, verdict.error().message);
  CHECK(verdict->device == bed.device.uuid);
  CHECK(verdict->latency_us == 600);
  double regions_us = 0;
  for (const auto& [region, us] : verdict->regions.items()) regions_us += us.get<double>();
  CHECK(regions_us == doctest::Approx(600));
  CHECK_FALSE(verdict->versus);
  REQUIRE(bed.link.requests.size() == 2);
  CHECK(bed.link.requests[0].at("op") == "open");
  CHECK(bed.link.requests[0].at("workload") == "det_gemm:fwd:512x1024x1024");
  CHECK(bed.link.requests[1].at("family") == "det_gemm");
  CHECK(bed.link.requests[1].at("config") == config);
  CHECK(bed.link.requests[1].at("incumbent").is_null());
  const auto compared = judge.judge(*w, config, incumbent, {});
  REQUIRE(compared);
  REQUIRE(compared->versus);
  CHECK(compared->versus->ratio == doctest::Approx(1.1));
  CHECK(compared->versus->decision == Decision::Faster);
  CHECK(compared->versus->incumbent == w->schedule_id(incumbent));
}

TEST_CASE("a worker that lies: numbers without samples, of other samples, of another schedule" * needs_nvrtc()) {
  Bed bed;
  const auto w = workload();
  const Json config = w->default_config();
  Json incumbent = config;
  incumbent["stages"] = config.at("stages").get<int>() - 1;
  std::function<void(Json&)> tell;
  bed.link.answer = honest_but_for(*w, tell);
  RemoteJudge judge(bed.device, bed.options, bed.link);
  // What the verdict says of time is not even read: it is computed again.
  tell = [](Json& b) { b["verdict"]["latency_us"] = 20.0, b["verdict"]["withheld"] = nullptr; };
  auto v = judge.judge(*w, config, incumbent, {});
  REQUIRE_MESSAGE(v, v.error().message);
  CHECK(v->latency_us == 600);
  tell = [](Json& b) {
    for (Json& us : b["timing"]["candidate_us"]) us = 1e-3;
  };
  v = judge.judge(*w, config, incumbent, {});
  REQUIRE(v);
  CHECK(v->withheld == "below-floor");
  CHECK_FALSE(v->latency_us);
  CHECK_FALSE(v->versus);
  for (const auto& lie : std::vector<std::function<void(Json&)>>{
           [](Json& b) { b.erase("timing"); },
           [](Json& b) { b.erase("wall_ratio"); },
           [](Json& b) { b["wall_ratio"] = "1.02"; },
           [](Json& b) { b["timing"]["rounds"] = 16; },
           [](Json& b) { b["timing"]["candidate_us"] = {500.0}; },
           [](Json& b) { b["timing"]["candidate_us"][2] = -1; },
           [](Json& b) { b["timing"]["incumbent_us"] = Json::array(); },
           [](Json& b) { b["timing"]["latency_us"] = 20.0; },
           [](Json& b) { b["timing"]["incumbent_us"] = std::vector<double>(16, 1e6); },
       }) {
    tell = lie;
    const int restarts = bed.link.restarts;
    v = judge.judge(*w, config, incumbent, {});
    REQUIRE_MESSAGE(v, v.error().message);
    CHECK(v->withheld == "implausible-timing");
    CHECK_FALSE(v->latency_us);
    CHECK_FALSE(v->versus);
    CHECK(bed.link.restarts == restarts + 1);
  }
  // A verdict that was issued for another schedule, and replies that are none.
  for (const auto& lie : std::vector<std::function<void(Json&)>>{
           [&](Json& b) {
             b["verdict"]["config"] = incumbent;
             b["verdict"]["schedule_id"] = w->schedule_id(incumbent);
           },
           [&](Json& b) { b["verdict"]["config"] = incumbent; },
           [](Json& b) { b["verdict"]["workload"] = "det_gemm:fwd:64x64x64"; },
           [](Json& b) { b["verdict"]["regime"] = "bf16-b1"; },
           [](Json& b) { b.erase("verdict"); },
           [](Json& b) { b["verdict"] = "fast"; },
           [](Json& b) { b["verdict"]["status"] = "incorrect"; },
       }) {
    tell = lie;
    v = judge.judge(*w, config, incumbent, {});
    REQUIRE_FALSE(v);
    CHECK(v.error().kind == ErrorKind::Corrupt);
    CHECK(v.error().data.contains("lie"));
  }
}

TEST_CASE("what the card said of itself is in the verdict: clocks, power limit, other processes, events against the wall clock" * needs_nvrtc()) {
  Bed bed;
  const auto w = workload();
  std::function<void(Json&)> tell = [](Json&) {};
  bed.link.answer = honest_but_for(*w, tell);
  RemoteJudge judge(bed.device, bed.options, bed.link);
  tell = [](Json& b) { b["timing"]["clock_mhz"] = 1755, b["timing"]["throttle_reasons"] = 4, b["other_processes"] = 2; };
  auto v = judge.judge(*w, w->default_config(), std::nullopt, {});
  REQUIRE_MESSAGE(v, v.error().message);
  CHECK(v->latency_us == 600);
  REQUIRE(v->noise);
  CHECK(v->noise->clock_mhz == 1755);
  CHECK(v->noise->throttled);
  CHECK(v->noise->rounds == 8);
  CHECK(v->notes == "2 other processes were computing on the GPU. Timed while the card throttled (software-power).");
  tell = [](Json& b) { b["wall_ratio"] = 0.5; };
  v = judge.judge(*w, w->default_config(), std::nullopt, {});
  REQUIRE(v);
  CHECK(v->withheld == "events-exceed-wall-clock");
  CHECK_FALSE(v->latency_us);
  CHECK(bed.link.restarts == 0);
  // Every round was dropped: correct, without a number, and nobody's lie.
  tell = [](Json& b) {
    b.erase("timing"), b.erase("wall_ratio"), b.erase("other_processes");
    b["verdict"]["withheld"] = "no-valid-samples";
    b["verdict"]["latency_us"] = nullptr, b["verdict"]["latency_kind"] = nullptr;
  };
  v = judge.judge(*w, w->default_config(), std::nullopt, {});
  REQUIRE(v);
  CHECK(v->status == VerdictStatus::Ok);
  CHECK(v->withheld == "no-valid-samples");
  CHECK_FALSE(v->latency_us);
  CHECK(bed.link.restarts == 0);
}

TEST_CASE("a worker that dies in a candidate's turn: crash when the probe passes, unavailable when it does not" * needs_nvrtc()) {
  Bed bed;
  const auto w = workload();
  bool healthy = true;
  bed.link.answer = [&](const Json& request) -> Result<Message> {
    if (request.at("op") == "check") return fail(ErrorKind::Unavailable, "the GPU worker is gone: ended by signal 6 (Aborted)", {{"signal", 6}});
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
  CHECK(gpu_is_broken(broken.error()));
}

TEST_CASE("a worker that is killed from outside gets its candidate another turn; twice is a crash" * needs_nvrtc()) {
  Bed bed;
  const auto w = workload();
  int kills = 1;
  bed.link.answer = [&](const Json& request) -> Result<Message> {
    Message reply;
    if (request.at("op") != "check") return reply;
    if (kills-- > 0) return fail(ErrorKind::Unavailable, "the GPU worker is gone: ended by signal 9 (Killed)", {{"signal", 9}});
    reply.body = honest_reply(*w, request);
    std::this_thread::sleep_for(std::chrono::milliseconds(22));
    return reply;
  };
  RemoteJudge judge(bed.device, bed.options, bed.link);
  const auto once = judge.judge(*w, w->default_config(), std::nullopt, {});
  REQUIRE_MESSAGE(once, once.error().message);
  CHECK(once->latency_us == 600);
  CHECK(bed.link.restarts == 1);
  CHECK(bed.link.requests.size() == 4);  // open, check, open, check
  kills = 2;
  const auto twice = judge.judge(*w, w->default_config(), std::nullopt, {});
  REQUIRE_MESSAGE(twice, twice.error().message);
  CHECK(twice->status == VerdictStatus::Crash);
  CHECK(twice->notes.find("in each of two turns") != std::string::npos);
}
