// Powers of two among a knob's choices. The sizes of problems and of machines are mostly such, so a block or tile of another size leaves remainders:
// branches at the border, lanes without work, addresses that no longer line up. That is known before any measurement, and it is not what
// neighbourhood on the axis says, nor divisibility alone (96 and 160 are as divisible as 32).
#pragma once

#include <cstdint>
#include <vector>

#include "core/schedule/space.h"

namespace amk {

// One flag a choice; empty unless the knob is ordinal with at least two powers of two and at least two other choices, so that telling them apart says
// something.
std::vector<bool> powers_of_two(const Knob& knob);

// The power of two nearest to a choice by ratio, the lower one of two as near; a choice that is no number stays. powers_of_two(knob) must not be
// empty.
std::uint16_t nearest_power_of_two(const Knob& knob, std::uint16_t choice);

}  // namespace amk
