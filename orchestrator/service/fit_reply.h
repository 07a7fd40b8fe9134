// How a proposal is kept short: agents read all of it.
#pragma once

#include <cstddef>

#include "core/base/error.h"

namespace amk {

inline constexpr std::size_t kReplyLimit = 8100;  // bytes; the contract allows 8 KB

// Takes away from `out` (Service::propose) until it is below kReplyLimit, whatever the workload's name, its space and its incumbent are. First goes
// what is the same in every proposal of the workload (the meanings of switches, whose names say what they join; the reasons of constraints, which a
// rejection tells as well), then what is of least use; the suggestions, some of what was tried and of the knobs that matter stay longest.
void fit_reply(Json& out);

}  // namespace amk
