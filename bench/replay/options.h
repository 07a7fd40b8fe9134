// The command line of bench/run replay.
#pragma once

#include <filesystem>

#include "bench/replay/runs/replay.h"

namespace amk {

// What a prior is learned from: all that a sibling's recording holds, rows of it by lot, the evaluations of a cold search on it, or all of it told
// falsely.
enum class PriorKind { Whole, Lot, Search, False };

struct ReplayCommand {
  std::filesystem::path spaces, prior, plot;
  std::size_t prior_rows = 0, prior_draw = 0, sibling_draws = 0;  // prior_draw 0: as --seed
  PriorKind kind = PriorKind::Whole;
  ReplayOptions replay;
};

// InvalidArgument names the option, its value and what is accepted.
Result<ReplayCommand> replay_command(int argc, const char* const* argv);

}  // namespace amk
