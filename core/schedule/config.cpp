#include "core/schedule/config.h"

#include <algorithm>
#include <limits>

#include "core/base/hash.h"
#include "core/base/parse_json.h"
#include "core/schedule/fields.h"
#include "core/schedule/fusion.h"
#include "core/schedule/nearest_name.h"

namespace amk {
namespace {

constexpr std::string_view kFusion = "fusion_grouping";
constexpr std::string_view kAssignment = "sm_assignment";

// Longest sensible tile name: "L4095.kv_append.2097151". Longer keys are shown cut in messages.
constexpr std::size_t kShownKey = 80;
// Only the type's range: whether the target has such an SM is for lowering to say, with a witness.
constexpr int kMaxSm = std::numeric_limits<int>::max();

std::string shown(std::string_view key) {
  if (key.size() <= kShownKey) return std::string(key);
  std::size_t end = kShownKey;
  while (end > 0 && (static_cast<unsigned char>(key[end]) & 0xC0) == 0x80) --end;
  return std::string(key.substr(0, end)) + "…";
}

std::string join(std::string_view prefix, std::string_view key) {
  return prefix.empty() ? std::string(key) : std::string(prefix) + "." + std::string(key);
}

std::vector<std::string> all_paths() {
  std::vector<std::string> paths{std::string(kFusion)};
  for (const Field& field : schedule_fields()) paths.push_back(field.path);
  return paths;
}

tl::unexpected<Error> unknown_key(std::string_view prefix, std::string_view key, const Json& value) {
  std::vector<std::string> here;  // what may stand beside this key
  const std::vector<std::string> paths = all_paths();
  for (const std::string& path : paths) {
    if (!prefix.empty() && path.rfind(std::string(prefix) + ".", 0) != 0) continue;
    const std::string rest = prefix.empty() ? path : path.substr(prefix.size() + 1);
    const std::string name = rest.substr(0, rest.find('.'));
    if (std::find(here.begin(), here.end(), name) == here.end()) here.push_back(name);
  }
  // The right key at the wrong depth is the commonest slip: look at the last parts of every path as well.
  std::string meant;
  for (const std::string& path : paths)
    if (path.substr(path.rfind('.') + 1) == key) meant = path;
  if (meant.empty()) {
    if (const std::string* near = nearest_name(key, here)) meant = join(prefix, *near);
  }
  const std::string field = join(prefix, shown(key));
  std::string message = "unknown key " + field;
  if (!meant.empty()) message += "; did you mean " + meant + "?";
  message += " Accepted" + (prefix.empty() ? std::string() : " in " + std::string(prefix)) + ": ";
  for (std::size_t i = 0; i < here.size(); ++i) message += (i ? ", " : "") + here[i];
  Json data = bad_field(field, value, "no such key").value().data;
  data["accepted"] = here;
  if (!meant.empty()) data["did_you_mean"] = meant;
  return fail(ErrorKind::InvalidArgument, std::move(message), std::move(data));
}

// "L<layer>.<instruction>.<tile>" or "<instruction>.<tile>", numbers without leading zeros. Whether such a tile exists only lowering can tell.
bool is_tile_name(std::string_view name) {
  const auto number = [](std::string_view digits) {
    return !digits.empty() && digits.size() <= 7 && std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
           (digits.size() == 1 || digits[0] != '0');
  };
  const std::size_t last = name.rfind('.');
  if (name.size() > kShownKey || last == std::string_view::npos || !number(name.substr(last + 1))) return false;
  std::string_view instruction = name.substr(0, last);
  if (const std::size_t dot = instruction.find('.'); dot != std::string_view::npos) {
    if (instruction[0] != 'L' || !number(instruction.substr(1, dot - 1))) return false;
    instruction = instruction.substr(dot + 1);
  }
  return !instruction.empty() && std::all_of(instruction.begin(), instruction.end(), [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

Status parse_assignment_map(const Json& json, ScheduleConfig& config) {
  for (const auto& [name, sm] : json.items()) {
    const std::string field = std::string(kAssignment) + "." + shown(name);
    if (!is_tile_name(name)) return bad_field(field, sm, "tile names such as \"L0.qkv.3\" or \"lm_head.0\" as keys");
    std::int64_t value = -1;
    if (sm.is_number_float() && sm.get<double>() >= 0 && sm.get<double>() <= kMaxSm && sm.get<double>() == static_cast<int>(sm.get<double>()))
      value = static_cast<int>(sm.get<double>());
    else if (sm.is_number_integer() && (!sm.is_number_unsigned() || sm.get<std::uint64_t>() <= kMaxSm))
      value = sm.get<std::int64_t>();
    if (value < 0 || value > kMaxSm) return bad_field(field, sm, "an SM number from 0 up");
    config.explicit_sm[name] = static_cast<int>(value);
  }
  // A map that names no tile places every tile round robin: one meaning, one spelling, one id.
  config.sm_assignment = config.explicit_sm.empty() ? SmAssignment::RoundRobin : SmAssignment::Explicit;
  return {};
}

Status parse_key(std::string_view path, const Json& value, ScheduleConfig& config) {
  if (path == kFusion) {
    AMK_TRY(fusion, parse_fusion_grouping(value));
    config.fusion = fusion;
    return {};
  }
  if (path == kAssignment) {
    config.explicit_sm.clear();
    if (value.is_object()) return parse_assignment_map(value, config);
    if (!value.is_string()) return bad_field(kAssignment, value, find_field(kAssignment)->accepted_text() + ", or an object {\"L0.qkv.3\": 17, …}");
  }
  const Field& field = *find_field(path);
  AMK_TRY(number, field.from_json(value));
  field.set(config, number);
  return {};
}

Status parse_object(std::string_view prefix, const Json& json, ScheduleConfig& config) {
  if (!json.is_object()) return bad_field(prefix.empty() ? "config" : prefix, json, "an object");
  for (const auto& [key, value] : json.items()) {
    const std::string path = join(prefix, key);
    bool known = path == kFusion || find_field(path) != nullptr;
    bool section = false;
    if (!known && key.find('.') == std::string::npos)
      for (const Field& field : schedule_fields()) section = section || field.path.rfind(path + ".", 0) == 0;
    if (known && key.find('.') != std::string::npos) known = false;  // {"tiling.gemv.N_tile": 8} is one key with dots, not a path
    if (!known && !section) return unknown_key(prefix, key, value);
    AMK_CHECK(section ? parse_object(path, value, config) : parse_key(path, value, config));
  }
  return {};
}

void put(Json& root, std::string_view path, Json value) {
  Json* at = &root;
  for (std::size_t dot; (dot = path.find('.')) != std::string_view::npos; path = path.substr(dot + 1)) at = &(*at)[std::string(path.substr(0, dot))];
  (*at)[std::string(path)] = std::move(value);
}

}  // namespace

Result<ScheduleConfig> parse_schedule_config(const Json& json) { return parse_schedule_config(json, ScheduleConfig{}); }

Result<ScheduleConfig> parse_schedule_config(const Json& json, const ScheduleConfig& defaults) {
  ScheduleConfig config = defaults;
  AMK_CHECK(parse_object("", json, config));
  return config;
}

Json to_json(const ScheduleConfig& config) {
  Json json = Json::object();
  const ScheduleConfig defaults;
  for (const Field& field : schedule_fields()) {
    if (field.silent_default && field.get(config) == field.get(defaults)) continue;
    if (field.path != kAssignment) put(json, field.path, field.to_json(field.get(config)));
  }
  json[std::string(kFusion)] = fusion_grouping_json(config.fusion);
  if (config.sm_assignment == SmAssignment::Explicit) {
    json[std::string(kAssignment)] = Json::object();
    for (const auto& [tile, sm] : config.explicit_sm) json[std::string(kAssignment)][tile] = sm;
  } else {
    const Field& field = *find_field(kAssignment);
    json[std::string(kAssignment)] = field.to_json(field.get(config));
  }
  return json;
}

std::string schedule_id(const ScheduleConfig& config) { return "s" + hash128_hex(canonical_dump(to_json(config))); }

}  // namespace amk
