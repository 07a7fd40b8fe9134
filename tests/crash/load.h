// Several clients at once on one workspace: begin, finish, lose, queue, claim, record, jobs, exports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "orchestrator/store/store.h"
#include "tests/crash/ack_log.h"

namespace amk::test {

struct LoadOptions {
  StoreOptions store;
  std::uint64_t seed = 1;
  int threads = 4;
  int operations = 100;  // of all threads together
  bool exports = true;   // results.tsv and corpus.jsonl follow
};

// Runs the load in this process and returns true when it came to its end, closing the store. Appends to `log` what was acknowledged.
// `log` keys carry the seed: seeds are not reused on one workspace.
bool run_load(const LoadOptions& options, AckLog& log);

}  // namespace amk::test
