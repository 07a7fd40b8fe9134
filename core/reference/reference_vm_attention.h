// Attention over the KV cache in splits, and the merge of their partials. Internal to reference_vm*.cpp.
#pragma once

#include <span>

#include "core/reference/reference_vm_ops.h"

namespace amk::vm {

// All query heads of one kv head over the positions of one split. Writes the normalised output when there is one split, else its partial.
void attention_tile(const StepContext& context, const BoundTask& task);
// The same over all positions, which are not split, into the scratch's outputs; task.inputs: q of the group, K head, V head.
void attend(const StepContext& context, const BoundTask& task);

// `out` = attention outputs of `kv_heads` consecutive kv heads, from task.inputs (one region a split; inactive ones are skipped), in split order.
void combine_partials(const StepContext& context, const BoundTask& task, int kv_heads, std::span<float> out);
void attention_combine(const StepContext& context, const BoundTask& task);

}  // namespace amk::vm
