// Proves a program safe before launch, for every interleaving of the SMs and every launch position < max_seq, or says why not.
// O(tasks × SMs) time and memory, no task limit. Thread-safe (pure). What it cannot see: docs/validator.md.
#pragma once

#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/program/program.h"

namespace amk {

struct Rejection {
  std::string rule;     // stable identifier: "cycle", "ring-deadlock", "unmet-wait", "partial-wait", "stale-epoch", "counter-overflow", "raw", "war",
                        // "waw", "double-write", "unwritten-output", "out-of-range", "misaligned", "page-alias", "length", "footprint", "malformed"
  std::string message;  // for people
  Json witness = Json::object();  // {"task": name, "other": name, "buffer", "bytes": [a, b), "missing": "edge …"} as far as they apply
};

struct Validation {
  std::optional<Rejection> rejection;  // empty: proved
  std::int64_t tasks = 0;
  std::int64_t edges = 0;  // wait edges examined
  bool valid() const { return !rejection.has_value(); }
};

// Trust: regions are taken at their word, whatever the opcodes are (programs by hand, in tests). Check: they are also compared with what each opcode
// touches for the program's model, so that a machine which computes with rows, heads and splits stays within what was proved.
enum class Footprints : std::uint8_t { Check, Trust };

Validation validate(const Program& program, Footprints footprints = Footprints::Check);

Json to_json(const Rejection& rejection);

}  // namespace amk
