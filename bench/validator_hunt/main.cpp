// Hunts for holes of the validator for a while. Prints JSON objects, one a line: {bench, metric, value, unit}; reports of what was found go to
// stderr. Exit 1 if any answer was wrong.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/json.h"
#include "tests/support/hunt/hunt.h"

using namespace amk;
using namespace amk::testing;

namespace {

void print(const std::string& metric, std::int64_t value) {
  std::printf("%s\n", Json{{"bench", "validator_hunt"}, {"metric", metric}, {"value", value}, {"unit", "programs"}}.dump().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 60;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 1;
  // Each mutant is a copy that lives for a moment: its pages need not go back to the system in between.
  ::mallopt(M_MMAP_THRESHOLD, 64 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
  std::mutex mutex;
  std::vector<HuntResult> results(static_cast<std::size_t>(threads));
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i)
    running.emplace_back([&, i] {
      HuntOptions options;
      options.seed = seed + static_cast<std::uint64_t>(i);
      options.mutants = INT64_MAX;
      options.seconds = seconds;
      options.complain = [&](const std::string& text) {
        const std::lock_guard lock(mutex);
        std::fprintf(stderr, "bench/validator_hunt: %s\n", text.c_str());
      };
      results[static_cast<std::size_t>(i)] = hunt(options);
    });
  for (std::thread& thread : running) thread.join();
  HuntResult all;
  for (const HuntResult& r : results) {
    for (auto [to, from] : {std::pair{&HuntResult::programs, r.programs},
                            {&HuntResult::instructions, r.instructions},
                            {&HuntResult::mutants, r.mutants},
                            {&HuntResult::same, r.same},
                            {&HuntResult::rounding, r.rounding},
                            {&HuntResult::reformatted, r.reformatted},
                            {&HuntResult::false_rejects, r.false_rejects},
                            {&HuntResult::broken_bases, r.broken_bases},
                            {&HuntResult::races, r.races},
                            {&HuntResult::differ, r.differ},
                            {&HuntResult::stuck, r.stuck}})
      all.*to += from;
    for (const auto& [rule, count] : r.refused) all.refused[rule] += count;
  }
  print("whole steps damaged", all.programs);
  print("single instructions damaged", all.instructions);
  print("mutants", all.mutants);
  for (const auto& [rule, count] : all.refused) print("refused: " + rule, count);
  print("accepted, the same bits", all.same);
  print("accepted, other rounding", all.rounding);
  print("accepted, of another numeric format", all.reformatted);
  print("false rejects", all.false_rejects);
  print("undamaged programs that break", all.broken_bases);
  print("accepted, and broken by the adversary", all.races);
  print("accepted, and another result", all.differ);
  print("accepted, and the VM could not run it", all.stuck);
  return all.wrong() == 0 ? 0 : 1;
}
