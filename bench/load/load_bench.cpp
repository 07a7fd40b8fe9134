// What agents see of each other: every client is a shim over stdio, as an agent starts it, and asks for this and that without a pause. On the CPU,
// so that an evaluation is proved, executed and predicted by the daemon itself.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/random.h"
#include "tests/support/process/process.h"

using namespace amk;
using amk::testing::Process;
using amk::testing::Workspace;

namespace {

using Clock = std::chrono::steady_clock;

struct Call {
  std::string tool;
  Json arguments;
};

// What a client asks next. Shares in percent: mostly looking, some evaluations, now and then a search.
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

struct Seen {
  std::mutex mutex;
  std::map<std::string, std::vector<double>> ms;
  std::map<std::string, int> errors;  // by their text
  int refuted = 0;
};

void client(const std::string& amk, const std::string& workspace, int number, double seconds, Seen& seen) {
  Process shim({amk, "mcp", "--workspace", workspace});
  int id = 0;
  const auto ask = [&](const Call& call) {
    const auto begin = Clock::now();
    shim.send({{"jsonrpc", "2.0"}, {"id", ++id}, {"method", "tools/call"}, {"params", {{"name", call.tool}, {"arguments", call.arguments}}}});
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
  };
  shim.request("initialize", {{"protocolVersion", "2025-06-18"}}, 0);
  // A job to ask for: a search that has not been waited for.
  const Json started = ask({"amk_loop", {{"model", "toy"}, {"gpu", "h200"}, {"device", "cpu"}, {"budget", 4}, {"seed", number}, {"wait_s", 0}}});
  std::string job = started["result"]["structuredContent"].value("job_id", "");
  if (job.empty()) throw std::runtime_error("no job: " + started.dump());
  Rng rng(static_cast<std::uint64_t>(number) + 1);
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  // As agents do: they ask for the job that they started last.
  for (int n = 0; Clock::now() < until; ++n) {
    const Json reply = ask(draw(rng, number, n, job));
    job = reply.value("/result/structuredContent/job_id"_json_pointer, job);
  }
}

void print(const std::string& metric, double value, const char* unit) {
  std::printf("%s\n", Json({{"bench", "load"}, {"metric", metric}, {"value", value}, {"unit", unit}}).dump().c_str());
}

double resident_mb(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("VmRSS:")) return std::atof(line.c_str() + 6) / 1024;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string amk = argc > 1 ? argv[1] : AMK_PROGRAM;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 20;
  const int clients = std::clamp(argc > 3 ? std::atoi(argv[3]) : 8, 1, 64);
  Workspace w;
  Seen seen;
  std::vector<std::thread> threads;
  std::atomic<int> died{0};
  double before = 0;
  {
    // Something to ask about.
    Process first({amk, "mcp", "--workspace", w.path().string()});
    first.request("initialize", {{"protocolVersion", "2025-06-18"}}, 0);
    const Json arguments = {{"model", "toy"}, {"gpu", "h200"}, {"device", "cpu"}, {"budget", 2}};
    first.request("tools/call", {{"name", "amk_loop"}, {"arguments", arguments}}, 1);
  }
  for (int c = 0; c < clients; ++c)
    threads.emplace_back([&, c] {
      try {
        client(amk, w.path().string(), c, seconds, seen);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "bench/load: client %d: %s\n", c, e.what());
        ++died;
      }
    });
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds / 10));
  if (const auto daemons = w.daemons(); !daemons.empty()) before = resident_mb(daemons.front());
  for (auto& thread : threads) thread.join();
  const auto daemons = w.daemons();
  int calls = 0, errors = 0;
  for (auto& [tool, ms] : seen.ms) {
    std::sort(ms.begin(), ms.end());
    calls += static_cast<int>(ms.size());
    const auto at = [&ms = ms](double q) { return ms[static_cast<std::size_t>(q * static_cast<double>(ms.size() - 1))]; };
    print(tool + "_calls", static_cast<double>(ms.size()), "1");
    print(tool + "_p50", at(0.5), "ms");
    print(tool + "_p99", at(0.99), "ms");
    print(tool + "_longest", ms.back(), "ms");
  }
  for (const auto& [text, count] : seen.errors) {
    errors += count;
    std::fprintf(stderr, "bench/load: %d times %s\n", count, text.c_str());
  }
  print("calls", calls, "1");
  print("refuted_claims", seen.refuted, "1");
  print("errors", errors + died, "1");
  print("daemons", static_cast<double>(daemons.size()), "1");
  print("rss_after_a_tenth", before, "MB");
  if (!daemons.empty()) print("rss_at_the_end", resident_mb(daemons.front()), "MB");
  return errors + died == 0 ? 0 : 1;
}
