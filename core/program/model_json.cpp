#include "core/program/model_json.h"

#include "core/program/packing.h"

namespace amk::program_json {

Json model_to_json(const ModelSpec& s) {
  Json json = {{"name", s.name},
               {"architecture", name_of(kArchitectures, s.architecture)},
               {"dtype", name_of(kDTypes, s.dtype)},
               {"vocab", s.vocab},
               {"hidden", s.hidden},
               {"intermediate", s.intermediate},
               {"layers", s.layers},
               {"heads", s.heads},
               {"kv_heads", s.kv_heads},
               {"head_dim", s.head_dim},
               {"max_position", s.max_position},
               {"sliding_window", s.sliding_window ? Json(*s.sliding_window) : Json(nullptr)},
               {"rms_eps", s.rms_eps},
               {"rope",
                {{"theta", s.rope.theta},
                 {"scaling", name_of(kRopeScalings, s.rope.scaling)},
                 {"factor", s.rope.factor},
                 {"low_freq_factor", s.rope.low_freq_factor},
                 {"high_freq_factor", s.rope.high_freq_factor},
                 {"original_max_position", s.rope.original_max_position},
                 {"inv_freq_dtype", name_of(kDTypes, s.rope.inv_freq_dtype)}}},
               {"tied_embeddings", s.tied_embeddings},
               {"qkv_bias", s.qkv_bias},
               {"o_bias", s.o_bias},
               {"mlp_bias", s.mlp_bias},
               {"qk_norm", s.qk_norm}};
  if (s.weight_format != WeightFormat::Stored) json["weight_format"] = name_of(kWeightFormats, s.weight_format);
  return json;
}

namespace {

Result<RopeSpec> rope_from_json(const Json& json, const Place& place) {
  RopeSpec rope;
  ObjectReader in(json, place);
  AMK_CHECK(in.number("theta", rope.theta));
  AMK_CHECK(in.name("scaling", kRopeScalings, rope.scaling));
  AMK_CHECK(in.number("factor", rope.factor));
  AMK_CHECK(in.number("low_freq_factor", rope.low_freq_factor));
  AMK_CHECK(in.number("high_freq_factor", rope.high_freq_factor));
  AMK_CHECK(in.integer("original_max_position", rope.original_max_position, 0, kMaxInt32));
  AMK_CHECK(in.name("inv_freq_dtype", kDTypes, rope.inv_freq_dtype));
  AMK_CHECK(in.done());
  return rope;
}

}  // namespace

Result<ModelSpec> model_from_json(const Json& json, const Place& place) {
  ModelSpec s;
  ObjectReader in(json, place);
  AMK_CHECK(in.text("name", s.name));
  AMK_CHECK(in.name("architecture", kArchitectures, s.architecture));
  AMK_CHECK(in.name("dtype", kDTypes, s.dtype));
  for (const auto& [key, member] : {std::pair{"vocab", &ModelSpec::vocab},
                                    {"hidden", &ModelSpec::hidden},
                                    {"intermediate", &ModelSpec::intermediate},
                                    {"layers", &ModelSpec::layers},
                                    {"heads", &ModelSpec::heads},
                                    {"kv_heads", &ModelSpec::kv_heads},
                                    {"head_dim", &ModelSpec::head_dim},
                                    {"max_position", &ModelSpec::max_position}})
    AMK_CHECK(in.integer(key, s.*member, 1, kMaxInt32));
  AMK_TRY(window, in.value("sliding_window"));
  if (!window->is_null()) {
    s.sliding_window = 0;
    AMK_CHECK(ObjectReader::read_integer(*window, {&in.place(), "sliding_window"}, *s.sliding_window, 1, kMaxInt32));
  }
  AMK_CHECK(in.number("rms_eps", s.rms_eps));
  AMK_TRY(rope, in.value("rope"));
  AMK_TRY(rope_spec, rope_from_json(*rope, {&in.place(), "rope"}));
  s.rope = rope_spec;
  for (const auto& [key, member] : {std::pair{"tied_embeddings", &ModelSpec::tied_embeddings},
                                    {"qkv_bias", &ModelSpec::qkv_bias},
                                    {"o_bias", &ModelSpec::o_bias},
                                    {"mlp_bias", &ModelSpec::mlp_bias},
                                    {"qk_norm", &ModelSpec::qk_norm}})
    AMK_CHECK(in.boolean(key, s.*member));
  if (in.has("weight_format")) AMK_CHECK(in.name("weight_format", kWeightFormats, s.weight_format));
  AMK_CHECK(in.done());
  AMK_CHECK(check_packable(s));
  return s;
}

}  // namespace amk::program_json
