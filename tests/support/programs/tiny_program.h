// Random programs of a few tasks with nothing guaranteed: small enough to try every interleaving, so that proof and simulation meet the truth.
#pragma once

#include "core/base/random.h"
#include "core/program/program.h"

namespace amk::testing {

struct TinyShape {
  int max_sms = 3;
  int max_tasks = 6;
  double wait_probability = 0.8;  // that a task waits for the counter of a task whose result it reads (and that is not before it on its SM)
};

// Structurally sound (indices, fan-ins, targets, ranges); order and memory are left to chance.
Program tiny_program(Rng& rng, const TinyShape& shape);

}  // namespace amk::testing
