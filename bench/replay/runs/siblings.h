// What a sibling's recording teaches: the same program recorded on another device, told whole or in part, well or ill. Pure; deterministic by draw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "bench/replay/recorded/recorded_space.h"
#include "orchestrator/strategy/strategy.h"

namespace amk {

// Whether the two were recorded of one program: the same knobs, by name. A prior can be carried over between such.
bool siblings(const RecordedSpace& a, const RecordedSpace& b);

// Rows of a recording, in points of its own space.
std::vector<Observation> recorded_rows(const RecordedSpace& recorded);
std::vector<Observation> rows_by_lot(std::vector<Observation> rows, std::size_t n, std::uint64_t draw);
// The evaluations of a cold search, as a workspace keeps them.
std::vector<Observation> searched_rows(const RecordedSpace& recorded, std::size_t evaluations, std::uint64_t draw);

// Rows that mislead: costs inverted or dealt out anew, each knob's choices reversed or dealt out anew.
enum class Lie { Inverted, Shuffled, Reversed, Permuted };
inline constexpr Lie kLies[] = {Lie::Inverted, Lie::Shuffled, Lie::Reversed, Lie::Permuted};
std::string_view to_string(Lie lie);
std::vector<Observation> told_falsely(const RecordedSpace& recorded, std::vector<Observation> rows, Lie lie, std::uint64_t draw);

// The prior that rows of `sibling` teach in the space of `target`. Knobs go by name, choices by value; a row with a value that the target lacks has
// no point there.
std::shared_ptr<const Prior> prior_from(const RecordedSpace& target, const RecordedSpace& sibling, const std::vector<Observation>& rows,
                                        std::uint64_t seed);

}  // namespace amk
