// What the counters prove about whole instructions: "every task of A is finished before any task of B starts". Internal to core/program.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program/program.h"

namespace amk::lowering {

// A task of the waiting instruction needs `from`: all of its tasks, or (per_head) those of the kv heads that the task itself covers.
struct Dependency {
  InstructionId from = kNone;
  bool per_head = false;
};

// Built once, in instruction order. Memory: two bits per pair of instructions.
class InstructionOrder {
 public:
  InstructionOrder() = default;
  explicit InstructionOrder(std::size_t instructions) : words_((instructions + 63) / 64) {}

  // Adds the next instruction with the dependencies that data flow asks for; returns those that no other one implies.
  std::vector<Dependency> add(std::vector<Dependency> needed);

  // Every task of `first` before every task of `second`.
  bool before(InstructionId first, InstructionId second) const { return test(whole_[static_cast<std::size_t>(second)], first); }

 private:
  using Bits = std::vector<std::uint64_t>;
  static bool test(const Bits& bits, InstructionId id) {
    return (bits[static_cast<std::size_t>(id) / 64] >> (static_cast<std::size_t>(id) % 64)) & 1;
  }
  static void set(Bits& bits, InstructionId id) {
    bits[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (static_cast<std::size_t>(id) % 64);
  }

  std::size_t words_ = 0;
  // Per instruction, those ordered before it: `path_` at least head by head, `whole_` every task before every task. A path is whole as soon as
  // one of its edges is: each edge covers all tasks of its source, and each task at its head waits for at least one.
  std::vector<Bits> path_, whole_;
};

}  // namespace amk::lowering
