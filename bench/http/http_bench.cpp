// What idle agents cost, and one call over HTTP while they are there. The server is another process; its memory and threads are read from /proc.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/process/process.h"
#include "tests/unit/http/raw_client.h"

using namespace amk;
using amk::testing::Process;
using amk::testing::RawClient;
using amk::testing::Workspace;

namespace {

using Clock = std::chrono::steady_clock;

void print(const char* metric, double value, const char* unit) {
  std::printf("%s\n", Json({{"bench", "http"}, {"metric", metric}, {"value", value}, {"unit", unit}}).dump().c_str());
  std::fflush(stdout);
}

// A number of /proc/PID/status, e.g. VmRSS in KB, Threads.
double status_of(pid_t pid, const std::string& field) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(field + ":")) return std::atof(line.c_str() + field.size() + 1);
  return 0;
}

std::string post(const std::string& method, const std::string& name, Json params) {
  params["_meta"] = {{"io.modelcontextprotocol/protocolVersion", "2026-07-28"}, {"io.modelcontextprotocol/clientCapabilities", Json::object()}};
  const std::string body = Json{{"jsonrpc", "2.0"}, {"id", 1}, {"method", method}, {"params", std::move(params)}}.dump();
  return "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
         "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: " +
         method + "\r\n" + (name.empty() ? "" : "Mcp-Name: " + name + "\r\n") + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

double quantile(std::vector<double>& v, double q) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[static_cast<std::size_t>(q * double(v.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  const std::string amk = argc > 1 ? argv[1] : AMK_PROGRAM;
  const int streams = std::clamp(argc > 2 ? std::atoi(argv[2]) : 200, 0, 500);
  const int calls = std::clamp(argc > 3 ? std::atoi(argv[3]) : 500, 10, 100'000);
  try {
    Workspace w;
    Process server({amk, "--workspace", w.path().string(), "serve", "--http", "127.0.0.1:0", "--no-token"});
    const auto line = server.read_line();
    if (!line) throw std::runtime_error("the server did not say its address");
    const std::string url = Json::parse(*line)["url"];
    const auto port = static_cast<std::uint16_t>(std::atoi(url.substr(url.rfind(':') + 1).c_str()));

    const double rss_before = status_of(server.pid(), "VmRSS"), threads_before = status_of(server.pid(), "Threads");
    std::vector<std::unique_ptr<RawClient>> idle;
    const std::string listen = post("subscriptions/listen", "", {{"notifications", {{"resourceSubscriptions", {"amk://results.tsv"}}}}});
    for (int i = 0; i < streams; ++i) {
      idle.push_back(std::make_unique<RawClient>(port));
      idle.back()->send(listen);
      if (idle.back()->read_until("acknowledged").find("acknowledged") == std::string::npos)
        throw std::runtime_error("stream " + std::to_string(i) + ": " + idle.back()->got);
    }
    print("idle_streams", streams, "streams");
    print("rss_total", status_of(server.pid(), "VmRSS") / 1024, "MB");
    print("rss_of_streams", (status_of(server.pid(), "VmRSS") - rss_before) / 1024, "MB");
    print("threads_of_streams", status_of(server.pid(), "Threads") - threads_before, "threads");

    std::vector<double> us;
    std::mutex mutex;
    std::vector<std::thread> clients;
    const std::string call = post("tools/call", "amk_results", {{"name", "amk_results"}, {"arguments", Json::object()}});
    for (int t = 0; t < 10; ++t)
      clients.emplace_back([&] {
        RawClient c(port);
        for (int i = 0; i < calls / 10; ++i) {
          const auto begin = Clock::now();
          c.got.clear();
          c.send(call);
          c.read_until("\"resultType\":\"complete\"}}");
          const double took = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
          std::lock_guard lock(mutex);
          us.push_back(took);
        }
      });
    for (auto& t : clients) t.join();
    print("call_10_clients_p50", quantile(us, 0.5), "us");
    print("call_10_clients_p99", quantile(us, 0.99), "us");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench/http: %s\n", e.what());
    return 1;
  }
}
