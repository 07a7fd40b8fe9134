// Looks for holes of the validator: programs of random models and configs, whole steps and single instructions, are damaged in one to three fields
// (damage.h). What validate() accepts all the same is held against the adversary of tests/support/programs, and run by the reference VM in several
// interleavings: it must compute what the program before the damage does, bit for bit.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace amk::testing {

struct HuntOptions {
  std::uint64_t seed = 1;
  std::int64_t mutants = 1000;
  double seconds = 0;  // of wall time; 0: no limit
  int mutants_per_program = 200;
  std::function<void(const std::string&)> complain;  // called with a report for each hole
};

struct HuntResult {
  std::int64_t programs = 0, instructions = 0;  // that were damaged: whole steps, single instructions
  std::int64_t mutants = 0;
  std::map<std::string, std::int64_t> refused;  // by rule
  std::int64_t same = 0;                        // accepted, unbroken, and the same bits
  std::int64_t rounding = 0;                    // accepted, unbroken, the same but for the order of sums
  std::int64_t reformatted = 0;                 // accepted, unbroken, and the program of another numeric format
  // Wrong answers.
  std::int64_t false_rejects = 0;  // undamaged programs refused
  std::int64_t broken_bases = 0;   // undamaged programs that the adversary broke, or that compute something else in another interleaving
  std::int64_t races = 0;          // accepted, and broken by the adversary
  std::int64_t differ = 0;         // accepted, and another result
  std::int64_t stuck = 0;          // accepted, and the VM could not run it
  std::int64_t wrong() const { return false_rejects + broken_bases + races + differ + stuck; }
};

HuntResult hunt(const HuntOptions& options);

}  // namespace amk::testing
