// What a user waits for when a client starts: process creation, connection, and the first reply. Every cold round has a workspace of its own.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/support/process/process.h"

using namespace amk;
using amk::testing::Process;
using amk::testing::Workspace;

namespace {

double ms_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t).count();
}

double first_reply_ms(const std::string& amk, const Workspace& w, bool modern) {
  const auto begin = std::chrono::steady_clock::now();
  Process p({amk, "mcp", "--workspace", w.path().string()});
  if (modern)
    p.request(
        "server/discover",
        {{"_meta", {{"io.modelcontextprotocol/protocolVersion", "2026-07-28"}, {"io.modelcontextprotocol/clientCapabilities", Json::object()}}}}, 1);
  else
    p.request("initialize",
              {{"protocolVersion", "2025-06-18"}, {"capabilities", Json::object()}, {"clientInfo", {{"name", "bench"}, {"version", "1"}}}}, 1);
  return ms_since(begin);
}

void print(const char* metric, std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  auto line = [&](const char* which, double value) {
    std::printf("%s\n", Json({{"bench", "startup"}, {"metric", std::string(metric) + "_" + which}, {"value", value}, {"unit", "ms"}}).dump().c_str());
  };
  line("p50", ms[ms.size() / 2]);
  line("max", ms.back());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string amk = argc > 1 ? argv[1] : AMK_PROGRAM;
  const int rounds = std::clamp(argc > 2 ? std::atoi(argv[2]) : 15, 1, 1000);
  try {
    for (bool modern : {false, true}) {
      std::vector<double> cold, warm;
      for (int i = 0; i < rounds; ++i) {
        Workspace w;
        cold.push_back(first_reply_ms(amk, w, modern));
        warm.push_back(first_reply_ms(amk, w, modern));
      }
      print(modern ? "cold_discover" : "cold_initialize", cold);
      print(modern ? "warm_discover" : "warm_initialize", warm);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench/startup: %s\n", e.what());
    return 1;
  }
}
