// The tables and how older files become newer ones. A step runs in one transaction with its version number, so a migration that is
// interrupted goes on from the last finished step.
#pragma once

#include <string>
#include <vector>

namespace amk {

struct SchemaStep {
  int version;      // user_version after this step
  std::string sql;  // statements; no transaction control
};
struct Schema {
  std::vector<SchemaStep> steps;  // ascending; the first makes an empty file
  int version() const { return steps.back().version; }
};

// Marks our files ("amkS"): another program's database is refused.
inline constexpr int kApplicationId = 0x616D6B53;

const Schema& current_schema();

}  // namespace amk
