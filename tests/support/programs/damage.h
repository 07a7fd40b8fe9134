// Changes of one to three fields anywhere in a program, without regard to what they mean: values taken over from the same field elsewhere, exchanged,
// moved a little, or wild; one field of one object, of all tasks of an instruction, or several of one task that a careful author would change
// together. What mutate.h has by kind, this has by chance, so that it also finds the kinds that nobody thought of.
#pragma once

#include <string>
#include <vector>

#include "core/base/random.h"
#include "core/program/program.h"

namespace amk::testing {

struct Damaged {
  Program program;
  std::string what;              // "task[12].row_begin 8 -> 16, region.begin 32 -> 64"
  std::vector<TaskId> suspects;  // tasks that were changed
};

// Names, the model, the schedule's id and sizes that only say what was are left alone: nobody computes with them.
Damaged damage(const Program& program, Rng& rng);

}  // namespace amk::testing
