// What agents see of each other: every client is a shim over stdio, as an agent starts it, and asks for this and that without a pause. On the CPU,
// so that an evaluation is proved, executed and predicted by the daemon itself.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

#include "bench/load/mixed_calls.h"

using namespace amk;
using namespace amk::bench;
using amk::testing::Process;
using amk::testing::Workspace;

namespace {

using Clock = std::chrono::steady_clock;

void client(const std::string& amk, const std::string& workspace, int number, double seconds, Seen& seen) {
  Process shim({amk, "mcp", "--workspace", workspace});
  int id = 0;
  shim.request("initialize", {{"protocolVersion", "2025-06-18"}}, 0);
  // A job to ask for: a search that has not been waited for.
  const Call first{"amk_loop", {{"model", "toy"}, {"gpu", "h200"}, {"device", "cpu"}, {"budget", 4}, {"seed", number}, {"wait_s", 0}}};
  const Json started = ask(shim, ++id, first, seen);
  std::string job = started["result"]["structuredContent"].value("job_id", "");
  if (job.empty()) throw std::runtime_error("no job: " + started.dump());
  Rng rng(static_cast<std::uint64_t>(number) + 1);
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  // As agents do: they ask for the job that they started last.
  for (int n = 0; Clock::now() < until; ++n) {
    const Json reply = ask(shim, ++id, draw(rng, number, n, job), seen);
    job = reply.value("/result/structuredContent/job_id"_json_pointer, job);
  }
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
  double before = 0, most = 0;
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
  for (int i = 1; i <= 100; ++i) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds / 100));
    const auto daemons = w.daemons();
    const double now = daemons.empty() ? 0 : resident_mb(daemons.front());
    most = std::max(most, now);
    if (i == 10) before = now;
  }
  for (auto& thread : threads) thread.join();
  const auto daemons = w.daemons();
  const int errors = print_seen("load", seen) + died;
  print("load", "errors", errors, "1");
  print("load", "daemons", static_cast<double>(daemons.size()), "1");
  print("load", "rss_after_a_tenth", before, "MB");
  print("load", "rss_most", most, "MB");
  if (!daemons.empty()) print("load", "rss_at_the_end", resident_mb(daemons.front()), "MB");
  return errors == 0 ? 0 : 1;
}
