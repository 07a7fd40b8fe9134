// Static rules between knobs: combinations that can run on no device. Decided from the config alone. Pure, thread-safe.
#pragma once

#include <span>
#include <string_view>

#include "core/schedule/config.h"

namespace amk {

struct ConfigRule {
  std::string_view name;                    // stable identifier, also the `rule` of a rejection
  std::string_view reason;                  // one sentence
  std::span<const std::string_view> paths;  // the keys that the rule reads
  bool (*holds)(const ScheduleConfig&);
};

std::span<const ConfigRule> config_rules();
const ConfigRule* violated_rule(const ScheduleConfig& config);  // the first violated; nullptr when none

// Whether a model's attention is computed by matrix instructions, which the rules about it need: bf16, head_dim 32, 64, 96 or 128, at most 8 query
// heads a kv head.
bool matrix_attention(const ModelSpec& spec);

}  // namespace amk
