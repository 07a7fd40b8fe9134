// What a program is refused for.
#pragma once

#include <string>

#include "core/program/validator.h"

namespace amk::test {

// "valid", or the rule that refuses it. Of a hand-made program opcodes say nothing: its footprints are taken as they are.
inline std::string rule_of(const Program& p, Footprints footprints = Footprints::Trust) {
  const Validation v = validate(p, footprints);
  return v.valid() ? "valid" : v.rejection->rule;
}

}  // namespace amk::test
