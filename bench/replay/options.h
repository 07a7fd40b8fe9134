// The command line of bench/run replay.
#pragma once

#include <filesystem>

#include "bench/replay/replay.h"

namespace amk {

struct ReplayCommand {
  std::filesystem::path spaces, prior, plot;
  std::size_t prior_rows = 0, prior_draw = 0, sibling_draws = 0;  // prior_draw 0: as --seed
  ReplayOptions replay;
};

// InvalidArgument names the option, its value and what is accepted.
Result<ReplayCommand> replay_command(int argc, const char* const* argv);

}  // namespace amk
