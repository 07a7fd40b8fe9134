// JSON form of a Program (schemas/program.schema.json). Exact round trip: from_json(to_json(p)) == p and equal text again.
#pragma once

#include "core/base/error.h"
#include "core/program/program.h"

namespace amk {

Json to_json(const Program& program);
// Structural checks only (types, ranges that memory safety needs, known names, version); semantics are the validator's.
Result<Program> program_from_json(const Json& json);

}  // namespace amk
