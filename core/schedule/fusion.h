// fusion_grouping as text: a list of groups of neighbouring operators, in the order in which a decode step runs them. Pure, thread-safe.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "core/base/error.h"
#include "core/schedule/config.h"

namespace amk {

// The operators of a step: one layer, then the head. "norm" and "add" occur more than once; their neighbours tell them apart.
inline constexpr std::array<std::string_view, 16> kStepOperators = {"norm",   "qkv",  "rope",    "kv_append", "attention", "combine",
                                                                    "o_proj", "add",  "norm",    "gate_up",   "silu_mul",  "down",
                                                                    "add",    "norm", "lm_head", "argmax"};

// One switch of Fusion: the operators [first, last] are one instruction.
struct FusionAtom {
  std::string_view name;  // "norm+qkv"
  bool Fusion::*member;
  int first = 0;  // index in kStepOperators
  int last = 0;
  std::string_view meaning;  // one sentence
};
std::span<const FusionAtom> fusion_atoms();

// Any list of groups that a Fusion can express, in any order; operators that no group names stay on their own.
Result<Fusion> parse_fusion_grouping(const Json& groups);
Json fusion_grouping_json(const Fusion& fusion);  // canonical: every operator once, in order

}  // namespace amk
