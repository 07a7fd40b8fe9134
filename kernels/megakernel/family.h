// The megakernel family: a HuggingFace Llama-family model's whole decode step as one persistent launch; the schedule is searched.
#pragma once

#include <memory>

#include "kernels/family.h"

namespace amk {

// Accepts every name without a family prefix ("family:…"): catalogue names, folders, org/name.
std::unique_ptr<KernelFamily> make_megakernel_family();

}  // namespace amk
