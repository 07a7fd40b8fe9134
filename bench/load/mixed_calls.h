// What agents ask of the daemon, mixed; what came back, counted. For the benchmarks of load and of hours.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/random.h"
#include "tests/support/process/process.h"

namespace amk::bench {

struct Call {
  std::string tool;
  Json arguments;
};

// What a client asks next. Shares in percent: mostly looking, some evaluations, now and then a search.
Call draw(Rng& rng, int client, int n, const std::string& job);

// Thread-safe.
struct Seen {
  std::mutex mutex;
  std::map<std::string, std::vector<double>> ms;
  std::map<std::string, int> errors;  // by their text
  int refuted = 0;
};

// One call by a shim, waited for and noted. Returns the reply.
Json ask(amk::testing::Process& shim, int id, const Call& call, Seen& seen);

// Prints calls, p50, p99 and longest of each tool, and says the errors on stderr; returns their number.
int print_seen(const std::string& bench, Seen& seen);
void print(const std::string& bench, const std::string& metric, double value, const std::string& unit);

}  // namespace amk::bench
