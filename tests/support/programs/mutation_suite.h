// Valid programs, each broken in one small way many times over; the validator's answer to each mutant against the adversary's.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "tests/support/programs/adversary.h"
#include "tests/support/programs/mutate.h"

namespace amk::testing {

struct KindCount {
  std::int64_t mutants = 0;
  std::int64_t rejected = 0;         // by the proof, which takes regions at their word
  std::int64_t rejected_broken = 0;  // of those: the adversary broke it too, so the rejection was needed
  std::int64_t wrong_footprint = 0;  // passed the proof, but its regions are not what its opcodes touch (the adversary cannot see that)
  std::int64_t accepted_unbroken = 0;
  std::int64_t false_accepts = 0;  // passed the proof, and broken
};

struct SuiteResult {
  std::array<KindCount, kMutations> kinds{};
  std::int64_t programs = 0;
  std::int64_t false_rejects = 0;  // valid programs refused
  std::int64_t broken_bases = 0;   // valid programs that the adversary broke: then validator or simulator is wrong
  std::int64_t schedules = 0;
  KindCount total() const;
};

struct SuiteOptions {
  std::uint64_t seed = 1;
  std::int64_t mutants = 1000;
  int mutants_per_program = 60;
  double whole_device_share = 0.02;  // of programs: 132 SMs, where the adversary holds back suspects only
  AdversaryOptions accepted;         // how hard to try where the validator sees nothing wrong
  AdversaryOptions rejected{1, 1, true, {}};
  std::function<void(const std::string&)> complain;  // called with a report for each wrong answer
};

SuiteResult run_suite(const SuiteOptions& options);
std::string markdown_table(const SuiteResult& result);

}  // namespace amk::testing
