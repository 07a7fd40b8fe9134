// The megakernel's GPU worker, played, for tests of its judge: models open, probes pass, and a clock is read from a card on which a step takes as
// long as the test says. What a check computes is each test's own. Samples take their time, so that a judge that holds them against its own clock
// believes them.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "core/base/json.h"
#include "core/schedule/config.h"
#include "core/target/gpu_target.h"
#include "kernels/device_judge.h"
#include "kernels/evaluator/clock.h"

namespace amk::test {

// Ten rounds of equal samples, with the summary that they have. `incumbent_us`: 0 where none was asked for.
inline Timing played_timing(double candidate_us, double incumbent_us) {
  Timing t;
  t.candidate_us.assign(20, candidate_us);
  t.latency_us = candidate_us;
  t.rounds = 10;
  t.clock_mhz = 1980;
  if (incumbent_us > 0) {
    t.incumbent_us.assign(20, incumbent_us);
    t.incumbent_latency_us = incumbent_us;
    t.versus = paired_ratio(t.incumbent_us, t.candidate_us);
    t.decision = decide(*t.versus);
  }
  return t;
}

struct PlayedWorker : WorkerLink {
  std::string uuid;
  // A step takes so long on a quiet card, and so many times as long beside other programs.
  double candidate_us = 50, incumbent_us = 60, crowd = 1;
  std::function<void(Json&)> on_pace = [](Json&) {}, on_time = [](Json&) {};  // replies, before they are sent
  std::function<std::optional<Error>(const std::string& op)> fails = [](const std::string&) { return std::optional<Error>(); };
  int restarts = 0, checks = 0, paces = 0;
  double patience_us = 0;  // of the last check
  Json last_time;          // the request

  Result<Message> call(const Json& request, std::chrono::milliseconds, const std::function<bool()>&) override {
    const std::string op = request.at("op");
    if (auto error = fails(op)) return tl::unexpected<Error>(*error);
    Message reply;
    if (op == "open") reply.body = {{"uuid", uuid}};
    if (op == "probe") reply.body = {{"healthy", true}};
    if (op == "check") return answer_check(request);
    if (op == "pace") {
      ++paces;
      reply.body = named(request);
      reply.body["candidate_us"] = std::vector<double>(5, crowd * candidate_us);
      reply.body["incumbent_us"] = std::vector<double>(6, crowd * incumbent_us);
      take_us(crowd * (5 * candidate_us + 6 * incumbent_us));
      on_pace(reply.body);
    }
    if (op == "time") {
      last_time = request;
      const double other_us = request.at("incumbent").is_null() ? 0 : incumbent_us;
      reply.body = named(request);
      reply.body["timing"] = to_json(played_timing(crowd * candidate_us, crowd * other_us));
      reply.body["last_hash"] = kLastHash;
      reply.body["other_processes"] = 0;
      reply.body["wall_ratio"] = 1.01;
      take_us(crowd * 20 * (candidate_us + other_us));
      on_time(reply.body);
    }
    return reply;
  }
  void restart() override { ++restarts; }

 protected:
  static constexpr int kLastHash = 77;
  static std::string id_of(const Json& config) { return schedule_id(parse_schedule_config(config).value()); }
  // What an honest worker says of a check beside the outputs.
  static Json honest_facts(const Json& request) {
    return {{"schedule_id", id_of(request.at("config"))},
            {"repeatable", true},
            {"last_hash", kLastHash},
            {"unwritten", 0},
            {"not_finite", 0},
            {"damaged_guards", 0},
            {"inputs_unchanged", true},
            {"program", {{"registers", 168}}}};
  }
  virtual Message check(const Json& request) = 0;

 private:
  Message answer_check(const Json& request) {
    ++checks;
    patience_us = request.value("patience_us", 0.0);
    if (patience_us <= 0 || crowd * candidate_us <= patience_us) return check(request);
    Message reply;
    reply.body = {{"schedule_id", id_of(request.at("config"))}, {"gave_up_us", crowd * candidate_us}};
    return reply;
  }
  static Json named(const Json& request) {
    const Json& other = request.at("incumbent");
    return {{"schedule_id", id_of(request.at("config"))}, {"incumbent_id", other.is_null() ? Json(nullptr) : Json(id_of(other))}};
  }
  static void take_us(double us) { std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(1.02 * us)); }
};

// The card that such a worker has.
inline GpuDevice played_device(const GpuTarget& target, std::string uuid) {
  GpuDevice device;
  device.uuid = std::move(uuid);
  device.sm_major = 9;
  device.sm_count = target.sm_count;
  device.smem_optin_bytes = target.smem_optin_bytes;
  device.max_threads_per_block = 1024;
  device.l2_bytes = target.l2_bytes;
  device.cooperative_launch = true;
  return device;
}

inline DeviceJudgeOptions played_options(std::filesystem::path kernels, std::filesystem::path locks) {
  DeviceJudgeOptions options;
  options.config_dir = std::filesystem::path(AMK_SOURCE_DIR) / "config";
  options.cache_folder = std::move(kernels);
  options.lock_folder = std::move(locks);
  return options;
}

}  // namespace amk::test
