// about.json beside a checkpoint: a record of how reference logits for it were made, e.g. {"transformers": "5.17.0", "weights_dtype":
// "torch.bfloat16", …}. Such references come from a module that was initialised in fp32 and cast as a whole, module.to(dtype), which
// also rounds the rotary inverse frequencies (a non-persistent buffer; from_pretrained keeps it in fp32). The record is the only place
// that says so: the checkpoint itself looks the same. Internal to core/model.
#pragma once

#include <filesystem>

#include "core/base/error.h"
#include "core/model/model_spec.h"

namespace amk {

// Sets spec.rope.inv_freq_dtype if the folder has such a record with both keys; leaves the spec alone otherwise.
Status apply_provenance(const std::filesystem::path& directory, ModelSpec& spec);

}  // namespace amk
