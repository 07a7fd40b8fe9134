// HuggingFace config.json -> ModelSpec, in the layouts of transformers 4 (rope_theta, rope_scaling, torch_dtype) and 5
// (rope_parameters, dtype). Absent fields take the defaults of transformers' configuration classes. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "core/base/error.h"
#include "core/model/model_spec.h"

namespace amk {

// Refuses everything this program cannot compute exactly as transformers would, naming the field and its value: Unsupported for a
// well-formed model outside the family, InvalidArgument for values that no model can have. `stored_dtype` stands in when the config
// names none (transformers then takes the checkpoint's own); without it such a config is refused.
Result<ModelSpec> import_config(const Json& config, std::string_view name, std::optional<DType> stored_dtype = std::nullopt);

// "float32" | "float16" | "bfloat16", with or without "torch.". Empty for anything else.
std::optional<DType> dtype_from_torch(std::string_view name);

}  // namespace amk
