#include "core/model/import_rope.h"

#include <algorithm>
#include <array>

namespace amk {
namespace {

constexpr double kMinTheta = 1.0;
constexpr double kMaxTheta = 1e12;
constexpr double kMaxFactor = 1e6;

// Anything else in the object would change the frequencies in a way this program does not compute.
Status refuse_unknown(const Json& rope, const Fields& f, bool llama3) {
  static constexpr std::array<std::string_view, 9> kKnown = {"rope_type",
                                                             "type",
                                                             "rope_theta",
                                                             "factor",
                                                             "partial_rotary_factor",
                                                             "original_max_position_embeddings",
                                                             "low_freq_factor",
                                                             "high_freq_factor",
                                                             "attention_factor"};
  for (const auto& [key, value] : rope.items()) {
    if (value.is_null()) continue;
    if (std::find(kKnown.begin(), kKnown.end(), key) == kKnown.end()) return unsupported_field(f.path(key), value, "absent");
    if ((key == "partial_rotary_factor" || key == "attention_factor") && (!value.is_number() || value.get<double>() != 1.0))
      return unsupported_field(f.path(key), value, "absent or 1");
    if (!llama3 && (key == "low_freq_factor" || key == "high_freq_factor"))
      return unsupported_field(f.path(key), value, "absent unless rope_type is llama3");
  }
  return {};
}

Result<std::string> rope_type(const Fields& f) {
  AMK_TRY(old_name, f.text("type", "default"));
  AMK_TRY(type, f.text("rope_type", old_name));
  if (f.given("type") && old_name != type) return bad_field(f.path("type"), old_name, "the same as rope_type, \"" + type + "\"");
  if (type != "default" && type != "linear" && type != "llama3")
    return unsupported_field(f.path(f.given("rope_type") ? "rope_type" : "type"), type, "default, linear, llama3");
  return type;
}

Status import_scaling(const Json& rope, const Fields& f, RopeSpec& spec) {
  AMK_TRY(type, rope_type(f));
  AMK_CHECK(refuse_unknown(rope, f, type == "llama3"));
  if (type == "default") {
    AMK_TRY(factor, f.number("factor", 0.0, kMaxFactor, 1.0));
    if (factor != 1.0) return unsupported_field(f.path("factor"), factor, "absent or 1 when rope_type is default");
    return {};
  }
  AMK_TRY(factor, f.number("factor", 1.0, kMaxFactor));  // transformers warns below 1 and then computes nonsense
  spec.factor = factor;
  spec.scaling = type == "linear" ? RopeScaling::Linear : RopeScaling::Llama3;
  if (spec.scaling == RopeScaling::Linear) return {};
  AMK_TRY(low, f.number("low_freq_factor", 1e-6, kMaxFactor));
  AMK_TRY(high, f.number("high_freq_factor", 1e-6, kMaxFactor));
  if (!(high > low)) return bad_field(f.path("high_freq_factor"), high, "more than low_freq_factor, " + Json(low).dump());
  AMK_TRY(original, f.integer("original_max_position_embeddings", 1, 1 << 30));
  spec.low_freq_factor = low, spec.high_freq_factor = high, spec.original_max_position = original;
  return {};
}

}  // namespace

Status import_rope(const Fields& config, ModelSpec& spec) {
  AMK_TRY(theta, config.number("rope_theta", kMinTheta, kMaxTheta, 10000.0));
  spec.rope.theta = theta;
  for (std::string_view key : {"rope_parameters", "rope_scaling"}) {
    if (!config.given(key)) continue;
    const Json& rope = *config.find(key);
    if (!rope.is_object()) return bad_field(config.path(key), rope, "an object or null");
    const Fields f(rope, config.path(key) + ".");
    if (key == "rope_scaling" && config.given("rope_parameters")) {
      if (rope != *config.find("rope_parameters")) return bad_field(config.path(key), rope, "absent, or equal to rope_parameters");
      continue;
    }
    AMK_CHECK(import_scaling(rope, f, spec.rope));
    if (f.given("rope_theta")) {
      AMK_TRY(inner, f.number("rope_theta", kMinTheta, kMaxTheta));
      if (config.given("rope_theta") && inner != theta)
        return bad_field(f.path("rope_theta"), inner, "the same as rope_theta, " + Json(theta).dump());
      spec.rope.theta = inner;
    }
  }
  return {};
}

}  // namespace amk
