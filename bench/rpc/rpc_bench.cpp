// The cost of asking: one tool, again and again. Over stdio it passes two processes (shim, daemon) each way; over the socket one.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "server/daemon/client.h"
#include "tests/support/process/process.h"

using namespace amk;
using amk::testing::Process;
using amk::testing::Workspace;

namespace {

using Clock = std::chrono::steady_clock;
double us_since(Clock::time_point t) { return std::chrono::duration<double, std::micro>(Clock::now() - t).count(); }

void print(const std::string& metric, std::vector<double> us) {
  std::sort(us.begin(), us.end());
  for (const auto& [name, at] : {std::pair{"p50", 0.5}, {"p99", 0.99}})
    std::printf(
        "%s\n",
        Json({{"bench", "rpc"}, {"metric", metric + "_" + name}, {"value", us[static_cast<std::size_t>(at * double(us.size() - 1))]}, {"unit", "us"}})
            .dump()
            .c_str());
  std::fflush(stdout);
}

std::vector<double> over_stdio(const std::string& amk, const Workspace& w, const std::string& tool, int calls) {
  Process p({amk, "mcp", "--workspace", w.path().string()});
  p.request("initialize", {{"protocolVersion", "2025-06-18"}}, 0);
  const Json params = {{"name", tool}, {"arguments", Json::object()}};
  std::vector<double> us;
  for (int i = 1; i <= calls; ++i) {
    const auto begin = Clock::now();
    const Json reply = p.request("tools/call", params, i);
    us.push_back(us_since(begin));
    if (!reply.contains("result") || reply["result"].value("isError", false)) throw std::runtime_error(tool + ": " + reply.dump());
  }
  return us;
}

std::vector<double> over_socket(const std::string& amk, const Workspace& w, const std::string& tool, int calls) {
  const auto paths = daemon::prepare_paths(w.path());
  if (!paths) throw std::runtime_error(paths.error().message);
  const auto client = daemon::daemon_client(*paths, {{amk, "serve", "--background", "--workspace", paths->workspace.string()}});
  std::vector<double> us;
  for (int i = 0; i < calls; ++i) {
    const auto begin = Clock::now();
    const auto reply = client->call(tool, Json::object());
    us.push_back(us_since(begin));
    if (!reply) throw std::runtime_error(tool + ": " + reply.error().message);
  }
  return us;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string amk = argc > 1 ? argv[1] : AMK_PROGRAM;
  const std::string tool = argc > 2 ? argv[2] : "amk_orchestrate_status";
  const int calls = std::clamp(argc > 3 ? std::atoi(argv[3]) : 2000, 10, 1'000'000);
  try {
    Workspace w;
    over_stdio(amk, w, tool, calls / 10);  // warm-up
    print("stdio", over_stdio(amk, w, tool, calls));
    print("socket", over_socket(amk, w, tool, calls));
    std::vector<std::vector<double>> each(10);
    std::vector<std::thread> threads;
    for (auto& us : each)
      threads.emplace_back([&] {
        try {
          us = over_stdio(amk, w, tool, calls / 10);
        } catch (const std::exception& e) {
          std::fprintf(stderr, "bench/rpc: %s\n", e.what());
        }
      });
    for (auto& t : threads) t.join();
    std::vector<double> all;
    for (const auto& us : each) all.insert(all.end(), us.begin(), us.end());
    if (all.empty()) return 1;
    print("stdio_10_clients", all);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench/rpc: %s\n", e.what());
    return 1;
  }
}
