// The suffix of a workload's model name: MODEL@int8, MODEL@b4, MODEL@int8,b4. Pure, but for asking whether a path exists. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/model/model_spec.h"

namespace amk {

constexpr unsigned kMostBatch = 8;  // sequences of one decode step

struct ModelVariant {
  std::string model;  // without the suffix: a catalogue name, a folder, org/name
  WeightFormat weights = WeightFormat::Stored;
  unsigned batch = 1;
  bool operator==(const ModelVariant&) const = default;
};

// What follows the last '@' is the suffix: "int8" and one of "b1" to "b8", each at most once, in any order, separated by a comma. A '/' behind the
// '@' belongs to a folder's name, and a path that exists as it is written is the model. InvalidArgument names the value and what is accepted.
Result<ModelVariant> parse_model_variant(std::string_view name);

// Canonical: what is as usual is left out, int8 comes before the batch. parse_model_variant() of it gives the same variant, unless such a path
// exists.
std::string to_string(const ModelVariant& variant);

}  // namespace amk
