// `amk generate MODEL@b4`: several prompts in one greedy decode, each sequence at its own position.
#pragma once

#include "core/model/load.h"
#include "server/cli/gpu_verbs.h"

namespace amk::cli {

// `gpu` null: on the CPU. {"model", "device", "batch", "sequences": [{"prompt_ids", "generated_ids", "tokens_processed"}], "verified"?}, sequences in
// the order of the prompts. InvalidArgument names prompt-ids when there is not one list a sequence.
Result<Json> generate_batch(const GenerateOptions& options, const ModelRef& ref, LocalGpu* gpu);

}  // namespace amk::cli
