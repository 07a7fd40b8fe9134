// What goes into one isolated instruction kind (core/program/lower_instruction.h) and what comes out of it, named alike in every lowering: fused or
// not, fp32 or bf16, on the reference VM or on a GPU. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/program/lower.h"

namespace amk {

// One run: a launch position, and the seed of every input value.
struct InstructionDraw {
  int position = 0;
  std::uint64_t seed = 0;
};
inline constexpr int kInstructionPosition = 256;  // where a kind is timed
// Position 0, around the edges of KV blocks, deep in the sequence, and last kInstructionPosition (or the sequence's end); fewer where the reference's
// arithmetic would take long. Seeds from `seed`.
std::vector<InstructionDraw> instruction_draws(const ModelSpec& spec, std::string_view op, int max_seq, std::uint64_t seed);

// Elements of a buffer that one draw fills or yields: whole vectors; of a cache [kv heads, max_seq, head_dim] rows of each head.
struct Slice {
  BufferId buffer = kNone;
  std::string name;
  int layer = -1;
  bool cache = false, values = false;  // values: V, not K
  std::int64_t first = 0, count = 0;   // elements of the buffer
};
// Every input of the program at `position`; a cache's rows [0, position], one slice a head.
std::vector<Slice> input_slices(const Program& program, int position);
// Every vector, logit and cache row that the program writes and does not itself consume, sorted by name: the same list for every lowering of an op.
std::vector<Slice> output_slices(const Program& program, int position);

// The slice's values, drawn by the seed and the slice's place: several distributions (even, heavy-tailed, sparse and large), rounded to what the GPU
// stores, so that every lowering reads the same numbers.
std::vector<float> input_values(const Program& program, const Slice& slice, const InstructionDraw& draw, const NumericFormat& gpu);

}  // namespace amk
