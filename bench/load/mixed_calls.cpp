#include "bench/load/mixed_calls.h"

#include <algorithm>
#include <cstdio>

namespace amk::bench {

using Clock = std::chrono::steady_clock;

Call draw(Rng& rng, int client, int n, const std::string& job) {
  const std::vector<std::string> gpus = {"h200", "h100", "rtx5090"};
  const std::string gpu = gpus[rng.below(gpus.size())];
  const auto share = rng.below(100);
  if (share < 30) return {"amk_orchestrate_status", Json::object()};
  if (share < 45) return {"amk_orchestrate_next", Json::object()};
  if (share < 65) return {"amk_results", {{"gpu", gpu}, {"limit", 20}, {"sort", share % 2 ? "-time" : "latency_us"}}};
  if (share < 75)
    return {"amk_orchestrate_record",
            {{"status", "revert"},
             {"description", "tried"},
             {"idempotency_key", std::to_string(client) + "-" + std::to_string(n)},
             {"config", {{"pipelining_depth", rng.below(4) + 1}}}}};
  if (share < 83) return {"amk_eval", {{"model", "toy"}, {"gpu", gpu}, {"device", "cpu"}, {"config", {{"pipelining_depth", rng.below(3) + 1}}}}};
  if (share < 87) return {"amk_propose", {{"model", "toy"}, {"gpu", gpu}, {"device", "cpu"}}};
  if (share < 92) return {"amk_job", {{"job_id", job}}};
  if (share < 95) return {"amk_orchestrate_report", Json::object()};
  if (share < 97) return {"amk_doctor", Json::object()};
  return {"amk_loop",
          {{"model", "toy"}, {"gpu", gpu}, {"device", "cpu"}, {"budget", 2}, {"seed", rng.below(1'000'000)}, {"wait_s", share % 2 ? 45 : 0}}};
}

Json ask(amk::testing::Process& shim, int id, const Call& call, Seen& seen) {
  const auto begin = Clock::now();
  shim.send({{"jsonrpc", "2.0"}, {"id", id}, {"method", "tools/call"}, {"params", {{"name", call.tool}, {"arguments", call.arguments}}}});
  Json reply = shim.reply(id, std::chrono::milliseconds(120'000));
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  const bool failed = !reply.contains("result") || reply["result"].value("isError", false);
  const Json error = failed ? reply.value("/result/structuredContent/error"_json_pointer, reply.value("error", Json(reply))) : Json::object();
  // A claim that an evaluation of the same config refutes or about a campaign that has ended, a job that is older than the 256 that are kept: to
  // be told so is the answer, not a failure.
  const std::string reason = error.value("/data/reason"_json_pointer, "");
  const bool refuted =
      reason == "status-contradicts-verdict" || reason == "campaign-done" || (call.tool == "amk_job" && error.value("kind", "") == "not_found");
  const std::lock_guard lock(seen.mutex);
  seen.ms[call.tool].push_back(ms);
  if (refuted) ++seen.refuted;
  if (failed && !refuted) ++seen.errors[call.tool + ": " + error.dump().substr(0, 300)];
  return reply;
}

void print(const std::string& bench, const std::string& metric, double value, const std::string& unit) {
  std::printf("%s\n", Json({{"bench", bench}, {"metric", metric}, {"value", value}, {"unit", unit}}).dump().c_str());
  std::fflush(stdout);
}

int print_seen(const std::string& bench, Seen& seen) {
  const std::lock_guard lock(seen.mutex);
  int calls = 0, errors = 0;
  for (auto& [tool, ms] : seen.ms) {
    std::sort(ms.begin(), ms.end());
    calls += static_cast<int>(ms.size());
    const auto at = [&ms = ms](double q) { return ms[static_cast<std::size_t>(q * static_cast<double>(ms.size() - 1))]; };
    print(bench, tool + "_calls", static_cast<double>(ms.size()), "1");
    print(bench, tool + "_p50", at(0.5), "ms");
    print(bench, tool + "_p99", at(0.99), "ms");
    print(bench, tool + "_longest", ms.back(), "ms");
  }
  for (const auto& [text, count] : seen.errors) {
    errors += count;
    std::fprintf(stderr, "bench/%s: %d times %s\n", bench.c_str(), count, text.c_str());
  }
  print(bench, "calls", calls, "1");
  print(bench, "refuted_claims", seen.refuted, "1");
  return errors;
}

}  // namespace amk::bench
