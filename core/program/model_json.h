// The model section of a program's JSON form: every field of ModelSpec, always present, so that the round trip is exact. Internal.
#pragma once

#include "core/base/error.h"
#include "core/model/model_spec.h"
#include "core/program/json_reader.h"

namespace amk::program_json {

Json model_to_json(const ModelSpec& spec);
// Also refuses dimensions that lowering would refuse (check_packable): what uses a Program divides and multiplies by them.
Result<ModelSpec> model_from_json(const Json& json, const Place& place);

}  // namespace amk::program_json
