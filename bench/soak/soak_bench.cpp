// Real hours of one daemon: agents that ask for everything at an agent's pace, shims that come and are killed, pages over HTTP that watch and leave.
// What must stay level is read from /proc and from the workspace, sixty times; the bounds below decide the exit code.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "bench/load/mixed_calls.h"
#include "tests/unit/http/raw_client.h"

using namespace amk;
using namespace amk::bench;
using amk::testing::Process;
using amk::testing::RawClient;
using amk::testing::Workspace;

namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr int kAgents = 4, kWatchers = 20, kSamples = 60;
// Bounds. Memory of the daemon's own: what it is given back to within a minute of peace is not asked for, only that it does not climb.
constexpr double kMostAnonymousMb = 256, kMostGrowthMb = 48;
constexpr std::int64_t kMostWal = 16 << 20, kMostLogs = 21 << 20;
constexpr int kMostThreads = 64;

struct Level {
  double anonymous_mb = 0, resident_mb = 0;
  int descriptors = 0, threads = 0;
  std::int64_t wal = 0, logs = 0, other = 0, database = 0;
};

std::int64_t size_of(const fs::path& path) {
  std::error_code code;
  const auto bytes = fs::file_size(path, code);
  return code ? 0 : static_cast<std::int64_t>(bytes);
}

Level level_of(pid_t pid, const fs::path& workspace) {
  Level level;
  const fs::path proc = "/proc/" + std::to_string(pid);
  std::ifstream in(proc / "status");
  for (std::string line; std::getline(in, line);) {
    const auto number = [&](const char* field) { return line.starts_with(field) ? std::atof(line.c_str() + std::string(field).size()) : -1; };
    if (const double kb = number("RssAnon:"); kb >= 0) level.anonymous_mb = kb / 1024;
    if (const double kb = number("VmRSS:"); kb >= 0) level.resident_mb = kb / 1024;
    if (const double n = number("Threads:"); n >= 0) level.threads = static_cast<int>(n);
  }
  std::error_code code;
  for (auto fd = fs::directory_iterator(proc / "fd", code); !code && fd != fs::directory_iterator(); fd.increment(code)) ++level.descriptors;
  for (auto entry = fs::recursive_directory_iterator(workspace, code); !code && entry != fs::recursive_directory_iterator(); entry.increment(code)) {
    std::error_code gone;
    if (!entry->is_regular_file(gone)) continue;
    const std::string name = entry->path().filename();
    const std::int64_t bytes = size_of(entry->path());
    if (name == "store.sqlite-wal")
      level.wal = bytes;
    else if (entry->path().parent_path().filename() == "logs")
      level.logs += bytes;
    else if (name == "store.sqlite")
      level.database = bytes;
    else if (name != "results.tsv" && name != "corpus.jsonl")  // these two hold every experiment, as the store does
      level.other += bytes;
  }
  return level;
}

struct Shared {
  std::string amk, workspace;
  std::uint16_t port = 0;
  std::atomic<bool> over{false};
  std::atomic<int> died{0};
  std::atomic<std::int64_t> came_and_went{0}, pages{0};
  Seen seen;
};

// A machine that does other work besides is slow, not broken.
constexpr std::chrono::milliseconds kPatience{120'000};

void initialize(Process& shim) {
  shim.send({{"jsonrpc", "2.0"}, {"id", 0}, {"method", "initialize"}, {"params", {{"protocolVersion", "2025-06-18"}}}});
  shim.reply(0, kPatience);
}

void pause(const Shared& shared, double seconds) {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (!shared.over && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

void agent(Shared& shared, int number) {
  Process shim({shared.amk, "mcp", "--workspace", shared.workspace});
  initialize(shim);
  int id = 0;
  const Call first{"amk_loop", {{"model", "toy"}, {"gpu", "h200"}, {"device", "cpu"}, {"budget", 4}, {"seed", number}, {"wait_s", 0}}};
  std::string job = ask(shim, ++id, first, shared.seen).value("/result/structuredContent/job_id"_json_pointer, "");
  Rng rng(static_cast<std::uint64_t>(number) + 1);
  for (int n = 0; !shared.over; ++n) {
    job = ask(shim, ++id, draw(rng, number, n, job), shared.seen).value("/result/structuredContent/job_id"_json_pointer, job);
    shim.others.clear();
    pause(shared, rng.uniform());
  }
}

// Shims that live for one call or less, ended in every way.
void passers_by(Shared& shared) {
  for (int n = 0; !shared.over; ++n) {
    Process shim({shared.amk, "mcp", "--workspace", shared.workspace});
    initialize(shim);
    if (n % 3 != 0) ask(shim, 1, {"amk_orchestrate_status", Json::object()}, shared.seen);
    if (n % 3 == 1) shim.close_stdin();
    if (n % 3 == 2) shim.kill(SIGTERM);  // else: killed
    ++shared.came_and_went;
    pause(shared, 0.5);
  }
}

// Pages that watch the dashboard's events; the oldest leaves when a new one comes.
void pages(Shared& shared) {
  std::vector<std::unique_ptr<RawClient>> watching;
  while (!shared.over) {
    auto page = std::make_unique<RawClient>(shared.port);
    page->send("GET /dashboard/api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    if (page->read_until("event: state", kPatience.count()).find("event: state") == std::string::npos)
      throw std::runtime_error("no events: " + page->got);
    watching.push_back(std::move(page));
    if (watching.size() > kWatchers) watching.erase(watching.begin());
    for (auto& each : watching) {  // what has arrived is read, as a browser does
      each->read_while([] { return true; }, 1);
      each->got.clear();
    }
    ++shared.pages;
    if (watching.size() == kWatchers) pause(shared, 1);
  }
}

void start(std::vector<std::thread>& threads, Shared& shared, const std::string& name, std::function<void()> body) {
  threads.emplace_back([&shared, name, body = std::move(body)] {
    try {
      body();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "bench/soak: %s: %s\n", name.c_str(), e.what());
      ++shared.died;
    }
  });
}

int judge(const std::vector<Level>& levels) {
  int broken = 0;
  const auto must = [&](const std::string& what, double value, double most) {
    print("soak", what, value, "1");
    if (value <= most) return;
    std::fprintf(stderr, "bench/soak: %s is %g; at most %g\n", what.c_str(), value, most);
    ++broken;
  };
  // The first quarter fills what is kept for good: finished jobs, page caches, the allocator's pools.
  const std::size_t quarter = levels.size() / 4;
  const auto most = [&](std::size_t from, std::size_t to, auto field) {
    double out = 0;
    for (std::size_t i = from; i < to; ++i) out = std::max(out, static_cast<double>(levels[i].*field));
    return out;
  };
  const std::size_t end = levels.size();
  const auto growth = [&](auto field) { return most(end - quarter, end, field) - most(quarter, 2 * quarter, field); };
  must("anonymous_mb_most", most(0, end, &Level::anonymous_mb), kMostAnonymousMb);
  must("anonymous_mb_growth", growth(&Level::anonymous_mb), kMostGrowthMb);
  must("descriptors_most", most(0, end, &Level::descriptors), 512);
  must("descriptors_growth", growth(&Level::descriptors), 8);
  must("threads_most", most(0, end, &Level::threads), kMostThreads);
  must("wal_bytes_most", most(0, end, &Level::wal), kMostWal);
  must("log_bytes_most", most(0, end, &Level::logs), kMostLogs);
  must("other_bytes_growth", growth(&Level::other), 8 << 20);
  return broken;
}

}  // namespace

int main(int argc, char** argv) {
  const double hours = argc > 2 ? std::atof(argv[2]) : 1.0 / 60;
  Workspace w;
  Shared shared;
  shared.amk = argc > 1 ? argv[1] : AMK_PROGRAM;
  shared.workspace = w.path() / "ws";
  try {
    Process server({shared.amk, "--workspace", shared.workspace, "serve", "--http", "127.0.0.1:0", "--no-token"},
                   {"AMK_CACHE=" + (w.path() / "cache").string()});
    const auto line = server.read_line();
    if (!line) throw std::runtime_error("the server did not say its address");
    const std::string url = Json::parse(*line)["url"];
    shared.port = static_cast<std::uint16_t>(std::atoi(url.substr(url.rfind(':') + 1).c_str()));

    {
      // Something to ask about.
      Process first({shared.amk, "mcp", "--workspace", shared.workspace});
      initialize(first);
      ask(first, 1, {"amk_loop", {{"model", "toy"}, {"gpu", "h200"}, {"device", "cpu"}, {"budget", 2}}}, shared.seen);
    }
    std::vector<std::thread> threads;
    for (int a = 0; a < kAgents; ++a) start(threads, shared, "agent " + std::to_string(a), [&shared, a] { agent(shared, a); });
    start(threads, shared, "passers-by", [&shared] { passers_by(shared); });
    start(threads, shared, "pages", [&shared] { pages(shared); });
    std::vector<Level> levels;
    for (int i = 0; i < kSamples; ++i) {
      std::this_thread::sleep_for(std::chrono::duration<double>(hours * 3600 / kSamples));
      const Level level = levels.emplace_back(level_of(server.pid(), w.path()));
      std::fprintf(stderr,
                   "bench/soak: %5.1f min: own memory %.0f MB, resident %.0f MB, %d descriptors, %d threads, journal %lld KiB, logs %lld KiB, store "
                   "%lld KiB, else %lld KiB\n",
                   hours * 60 * (i + 1) / kSamples, level.anonymous_mb, level.resident_mb, level.descriptors, level.threads,
                   static_cast<long long>(level.wal >> 10), static_cast<long long>(level.logs >> 10), static_cast<long long>(level.database >> 10),
                   static_cast<long long>(level.other >> 10));
    }
    shared.over = true;
    for (auto& thread : threads) thread.join();

    // In peace: is it well, and what does it hold?
    Process last({shared.amk, "mcp", "--workspace", shared.workspace});
    initialize(last);
    const Json doctor = ask(last, 1, {"amk_doctor", Json::object()}, shared.seen);
    const bool healthy = doctor.value("/result/structuredContent/healthy"_json_pointer, false);
    const bool same = testing::processes_with({"serve", shared.workspace}) == std::vector<pid_t>{server.pid()};
    std::this_thread::sleep_for(std::chrono::seconds(hours > 0.1 ? 60 : 5));
    const Level rest = level_of(server.pid(), w.path());

    print("soak", "hours", hours, "h");
    const int errors = print_seen("soak", shared.seen) + shared.died + !healthy + !same;
    print("soak", "errors", errors, "1");
    print("soak", "shims_come_and_gone", static_cast<double>(shared.came_and_went), "1");
    print("soak", "pages_come_and_gone", static_cast<double>(shared.pages), "1");
    print("soak", "anonymous_mb_first_quarter", levels[kSamples / 4 - 1].anonymous_mb, "MB");
    print("soak", "anonymous_mb_last", levels.back().anonymous_mb, "MB");
    print("soak", "anonymous_mb_at_rest", rest.anonymous_mb, "MB");
    print("soak", "descriptors_at_rest", rest.descriptors, "1");
    print("soak", "threads_at_rest", rest.threads, "1");
    print("soak", "database_bytes", static_cast<double>(rest.database), "B");
    return judge(levels) + errors == 0 ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench/soak: %s\n", e.what());
    return 1;
  }
}
