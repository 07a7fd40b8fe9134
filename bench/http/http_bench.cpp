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

void print(const std::string& metric, double value, const char* unit) {
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
std::string get(const std::string& path) { return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"; }

double quantile(std::vector<double>& v, double q) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[static_cast<std::size_t>(q * double(v.size() - 1))];
}

// `count` connections that send `request` and stay; each has seen `greeting`. What they cost the server is printed.
using Streams = std::vector<std::unique_ptr<RawClient>>;
Streams open_streams(const std::string& metric, pid_t server, std::uint16_t port, int count, const std::string& request,
                     const std::string& greeting) {
  const double rss_before = status_of(server, "VmRSS"), threads_before = status_of(server, "Threads");
  Streams streams;
  for (int i = 0; i < count; ++i) {
    streams.push_back(std::make_unique<RawClient>(port));
    streams.back()->send(request);
    if (streams.back()->read_until(greeting).find(greeting) == std::string::npos)
      throw std::runtime_error(metric + " " + std::to_string(i) + ": " + streams.back()->got);
  }
  print(metric, count, "streams");
  print(metric + "_rss", (status_of(server, "VmRSS") - rss_before) / 1024, "MB");
  print(metric + "_threads", status_of(server, "Threads") - threads_before, "threads");
  return streams;
}

// `calls` round trips by ten clients at once.
void round_trips(const std::string& metric, std::uint16_t port, int calls, const std::string& request) {
  std::vector<double> us;
  std::mutex mutex;
  std::string problem;
  std::vector<std::thread> clients;
  for (int t = 0; t < 10; ++t)
    clients.emplace_back([&] {
      RawClient c(port);
      for (int i = 0; i < calls / 10; ++i) {
        const auto begin = Clock::now();
        c.got.clear();
        c.send(request);
        c.read_response();
        const double took = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
        const std::lock_guard lock(mutex);
        us.push_back(took);
        if (c.status() != 200) problem = c.got;
      }
    });
  for (auto& t : clients) t.join();
  if (!problem.empty()) throw std::runtime_error(metric + ": " + problem);
  print(metric + "_10_clients_p50", quantile(us, 0.5), "us");
  print(metric + "_10_clients_p99", quantile(us, 0.99), "us");
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

    const auto agents =
        open_streams("idle_agents", server.pid(), port, streams,
                     post("subscriptions/listen", "", {{"notifications", {{"resourceSubscriptions", {"amk://results.tsv"}}}}}), "acknowledged");
    const auto pages = open_streams("idle_pages", server.pid(), port, streams, get("/dashboard/api/events"), "event: state");
    print("rss_total", status_of(server.pid(), "VmRSS") / 1024, "MB");
    print("threads_total", status_of(server.pid(), "Threads"), "threads");
    const auto call = [](const std::string& tool) { return post("tools/call", tool, {{"name", tool}, {"arguments", Json::object()}}); };
    round_trips("status", port, calls, call("amk_orchestrate_status"));
    std::this_thread::sleep_for(std::chrono::seconds(2));  // the rate limit allows 500 a second and bursts of twice as many
    round_trips("results", port, calls, call("amk_results"));
    std::this_thread::sleep_for(std::chrono::seconds(2));
    round_trips("page_state", port, calls, get("/dashboard/api/state"));
    print("threads_after", status_of(server.pid(), "Threads"), "threads");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench/http: %s\n", e.what());
    return 1;
  }
}
