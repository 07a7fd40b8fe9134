#include "core/schedule/fusion.h"

#include <algorithm>
#include <vector>

namespace amk {
namespace {

constexpr std::string_view kField = "fusion_grouping";

constexpr FusionAtom kAtoms[] = {
    {"norm+qkv", &Fusion::norm_qkv, 0, 1, "RMSNorm inside the QKV projection: one dependent hop less, the norm is recomputed on every SM"},
    {"qkv+rope+kv_append", &Fusion::qkv_rope_append, 1, 3, "(query and key norm,) RoPE and KV append inside the QKV projection: two hops less"},
    {"attention+combine", &Fusion::attention_combine, 4, 5,
     "attention of a KV head is not split; joined with o_proj as well, every SM computes the attention that its part of O needs: one hop less"},
    {"combine+o_proj", &Fusion::combine_o, 5, 6, "split-KV partials merged inside the output projection: one hop less, every SM reads all partials"},
    {"o_proj+add", &Fusion::o_add, 6, 7, "residual add inside the output projection: one hop less"},
    {"norm+gate_up", &Fusion::norm_gate_up, 8, 9, "RMSNorm inside the gate/up projection: one hop less, the norm is recomputed on every SM"},
    {"gate_up+silu_mul", &Fusion::gate_up_silu, 9, 10, "SiLU(gate) * up inside the gate/up projection: one hop less"},
    {"down+add", &Fusion::down_add, 11, 12, "residual add inside the down projection: one hop less"},
    {"norm+lm_head", &Fusion::norm_lm_head, 13, 14, "final RMSNorm inside the LM head: one hop less"},
    {"lm_head+argmax", &Fusion::lm_head_argmax, 14, 15, "partial argmax inside the LM head: one hop less"},
};

using Joined = std::array<bool, kStepOperators.size()>;  // [i]: operator i and i + 1 are one instruction

Joined joined_of(const Fusion& fusion) {
  Joined joined{};
  for (const FusionAtom& atom : kAtoms)
    if (fusion.*atom.member)
      for (int i = atom.first; i < atom.last; ++i) joined[static_cast<std::size_t>(i)] = true;
  return joined;
}

std::string accepted_groups() {
  std::string text = "groups of neighbouring operators joined by ";
  for (std::size_t i = 0; i < std::size(kAtoms); ++i) text += (i ? ", " : "") + std::string(kAtoms[i].name);
  return text + "; single operators";
}

// Where `names` occurs in the step among operators no group has taken yet; -1 when nowhere.
int find_free(const std::vector<std::string>& names, const std::array<bool, kStepOperators.size()>& taken) {
  for (std::size_t at = 0; at + names.size() <= kStepOperators.size(); ++at) {
    bool fits = true;
    for (std::size_t i = 0; i < names.size() && fits; ++i) fits = kStepOperators[at + i] == names[i] && !taken[at + i];
    if (fits) return static_cast<int>(at);
  }
  return -1;
}

Result<std::vector<std::string>> read_group(const Json& group) {
  if (!group.is_array() || group.empty()) return bad_field(kField, group, "each group is a list of at least one operator name");
  if (group.size() > kStepOperators.size()) return bad_field(kField, group, accepted_groups());
  std::vector<std::string> names;
  for (const Json& op : group) {
    if (!op.is_string()) return bad_field(kField, op, "operator names are strings");
    auto name = op.get<std::string>();
    if (std::find(kStepOperators.begin(), kStepOperators.end(), name) == kStepOperators.end())
      return bad_field(kField, op, "norm, qkv, rope, kv_append, attention, combine, o_proj, add, gate_up, silu_mul, down, lm_head, argmax");
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

std::span<const FusionAtom> fusion_atoms() { return kAtoms; }

Result<Fusion> parse_fusion_grouping(const Json& groups) {
  if (!groups.is_array()) return bad_field(kField, groups, "a list of operator groups, e.g. [[\"norm\",\"qkv\"],[\"attention\"]]");
  if (groups.size() > kStepOperators.size()) return bad_field(kField, groups, "at most one group per operator");
  std::vector<std::vector<std::string>> lists;
  for (const Json& group : groups) {
    AMK_TRY(names, read_group(group));
    lists.push_back(std::move(names));
  }
  // Longer groups first: a lone "norm" may stand for any norm that no longer group has claimed.
  std::stable_sort(lists.begin(), lists.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  std::array<bool, kStepOperators.size()> taken{};
  Joined joined{};
  for (const auto& names : lists) {
    const int at = find_free(names, taken);
    if (at < 0) {
      const bool neighbours = find_free(names, {}) >= 0;
      return bad_field(kField, Json(names), neighbours ? "each operator in one group" : accepted_groups());
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      taken[static_cast<std::size_t>(at) + i] = true;
      if (i + 1 < names.size()) joined[static_cast<std::size_t>(at) + i] = true;
    }
    // What is joined must be exactly a union of atoms: ["rope","kv_append"] or ["add","norm"] has no fused form.
    Fusion fusion{};
    for (const FusionAtom& atom : kAtoms) {
      bool whole = true;
      for (int i = atom.first; i < atom.last; ++i) whole = whole && joined[static_cast<std::size_t>(i)];
      fusion.*atom.member = whole;
    }
    if (joined_of(fusion) != joined) return bad_field(kField, Json(names), accepted_groups());
  }
  Fusion fusion{};
  for (const FusionAtom& atom : kAtoms) fusion.*atom.member = joined[static_cast<std::size_t>(atom.first)];
  return fusion;
}

Json fusion_grouping_json(const Fusion& fusion) {
  const Joined joined = joined_of(fusion);
  Json groups = Json::array();
  Json group = Json::array();
  for (std::size_t i = 0; i < kStepOperators.size(); ++i) {
    group.push_back(kStepOperators[i]);
    if (joined[i]) continue;
    groups.push_back(std::move(group));
    group = Json::array();
  }
  return groups;
}

}  // namespace amk
