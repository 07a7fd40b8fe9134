// The rotary part of a config, in both layouts. Internal to core/model.
#pragma once

#include "core/model/config_fields.h"
#include "core/model/model_spec.h"

namespace amk {

Status import_rope(const Fields& config, ModelSpec& spec);

}  // namespace amk
