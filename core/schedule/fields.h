// The scalar keys of a ScheduleConfig, one record a key: what it accepts, what the search space offers, and how it is read and written.
// Parsing, the canonical form, the search space and the schema test all come from this one table. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/schedule/config.h"

namespace amk {

enum class FieldType { Integer, Boolean, Name };

// A value is carried as an integer: booleans as 0 and 1, names as their index (the order of the enumeration).
struct Field {
  std::string path;  // dotted, as in the JSON form
  FieldType type = FieldType::Integer;
  KnobKind kind = KnobKind::Ordinal;
  std::int64_t low = 0, high = 0, step = 1;  // Integer with an empty `accepted`: low, low + step, … high
  std::vector<std::int64_t> accepted;        // Integer: an enumeration
  std::vector<std::string> names;            // Name
  std::vector<std::int64_t> choices;         // what an ablation moves it to, ascending; all of them accepted
  std::vector<std::int64_t> searched;        // of these, what the space offers, the default among them; empty: all. The others make no difference
                                             // on any model that was measured (docs/lab/megakernel.md, 24)
  std::string unit;
  std::string meaning;
  bool silent_default = false;  // left out of the canonical form where it has its default: ids from before the key existed stay
  std::int64_t (*get)(const ScheduleConfig&) = nullptr;
  void (*set)(ScheduleConfig&, std::int64_t) = nullptr;

  bool accepts(std::int64_t value) const;
  std::int64_t searched_as(std::int64_t value) const;  // the largest that is searched and not above it: what makes no difference to it
  std::string accepted_text() const;
  Json to_json(std::int64_t value) const;
  Result<std::int64_t> from_json(const Json& json) const;  // InvalidArgument names path, value and what is accepted
};

std::span<const Field> schedule_fields();
const Field* find_field(std::string_view path);  // nullptr when absent

}  // namespace amk
