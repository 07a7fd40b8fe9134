// Programs that lowering makes of random models, configs and devices. Equal generator states, equal programs.
#pragma once

#include <optional>
#include <string>

#include "core/base/random.h"
#include "core/program/program.h"
#include "core/schedule/config.h"

namespace amk::testing {

struct RandomProgramLimits {
  int max_sms = 12;
  int max_layers = 2;
  int max_hidden = 64;      // and other widths in proportion
  int max_positions = 320;  // a split of attention covers at least 64
};

struct RandomProgram {
  ModelSpec spec;
  ScheduleConfig config;
  Program program;
};

// Empty when lowering refuses the draw (a ring that does not fit, …): draw again. `refused` then says why.
std::optional<RandomProgram> random_program(Rng& rng, const RandomProgramLimits& limits, std::string* refused = nullptr);
ModelSpec random_spec(Rng& rng, const RandomProgramLimits& limits);

}  // namespace amk::testing
