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
                        // "waw", "double-write", "unwritten-output", "out-of-range", "misaligned", "page-alias", "length", "malformed"
  std::string message;  // for people
  Json witness = Json::object();  // {"task": name, "other": name, "buffer", "bytes": [a, b), "missing": "edge …"} as far as they apply
};

struct Validation {
  std::optional<Rejection> rejection;  // empty: proved
  std::int64_t tasks = 0;
  std::int64_t edges = 0;  // wait edges examined
  bool valid() const { return !rejection.has_value(); }
};

Validation validate(const Program& program);

Json to_json(const Rejection& rejection);

}  // namespace amk
