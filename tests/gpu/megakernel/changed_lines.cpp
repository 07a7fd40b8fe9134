#include "tests/gpu/megakernel/changed_lines.h"

#include <string>

namespace amk::gpu_test {
namespace {

// What only the products of an int8 model can get wrong.
const ChangedLine kInt8[] = {
    {"nothing", "epilogue.cuh", "", ""},
    {"scales dropped", "epilogue.cuh",
     "sum = make_float4(sum.x * (scale.x * one), sum.y * (scale.y * one), sum.z * (scale.z * one), sum.w * (scale.w * one));",
     "sum = make_float4(sum.x * one, sum.y * one, sum.z * one, sum.w * one);"},
    {"scales of the next four rows", "epilogue.cuh", "task.layer)) + first;", "task.layer)) + first + 4;"},
    {"another matrix' scales", "epilogue.cuh", "scale_offset(task.matrix,", "scale_offset(task.matrix == kDown ? kO : task.matrix,"},
    {"sign bits of weights as magnitudes", "segment_int8.cuh", "s32.s8.s8.s32", "s32.u8.s8.s32"},
    {"the vector's bytes unsigned", "fixed_point.cuh", "__byte_perm(a, b, 0x7632) ^ 0x80808080u", "__byte_perm(a, b, 0x7632)"},
    {"the last limb lost", "segment_int8.cuh", "65536.0f", "0.0f"},
    {"halves of a lane's columns swapped", "segment_int8.cuh", "lane / 4 % 2 * 32", "(lane / 4 % 2 ^ 1) * 32"},
    {"another power of two", "fixed_point.cuh", "(bounded - 21) << 23", "(bounded - 20) << 23"},
};

// What only slices can get wrong.
const ChangedLine kSlices[] = {
    {"nothing", "slices.cuh", "", ""},
    {"a warp's sums forgotten", "slice_unit_end.cuh", "(q[0].x + q[0].y)", "q[0].x"},
    {"the norm's scale forgotten", "slices.cuh", "if (norm) v *=", "if (false) v *="},
    {"pairs of the vector in another order", "slice_vector.cuh", "from + 2 * k", "from + 2 * (k ^ 1)"},
    {"rotation the other way", "slice_unit_end.cuh", "first_half ? -block.rope()", "first_half ? block.rope()"},
    {"up through silu", "slice_unit_end.cuh", "silu(v) * other", "silu(other) * v"},
    {"the residual forgotten", "slice_unit_end.cuh", "v + settled", "v"},
    {"the second half of a block's columns twice", "slice_weights.cuh", "chunk + at + 512, there", "chunk + at, there"},
    {"the norm's scale forgotten by the LM head", "slice_lm_head.cuh", "unit.row() * scale", "unit.row()"},
    {"the LM head's vector in another order", "slice_lm_head.cuh", "lane % 2 * 4 + lane % 8 / 2", "lane % 8"},
    {"another unit's rows of the LM head", "slice_lm_head.cuh", "(mine - first) * (kHiddenBlocks * 1024)", "0"},
    {"the key of this step in the other half", "attention_slices.cuh", "in_tile / 2 % 2;", "1 - in_tile / 2 % 2;"},
    {"the value of this step at another position", "attention_slices.cuh", "in_tile % 4 == static_cast<u32>(e)",
     "in_tile % 4 == static_cast<u32>(3 - e)"},
    {"a warp's record forgotten", "attention_slices.cuh", "const u32 warps = tiles", "const u32 warps = tiles > 1 ? 1 : tiles"},
};

// What only attention and o_proj in one instruction can get wrong.
const ChangedLine kAttentionO[] = {
    {"nothing", "attention_o.cuh", "", ""},
    {"a warp's record forgotten", "attention_o.cuh", "(records, kConsumerWarps, i /", "(records, kConsumerWarps - 1, i /"},
    {"the head's vector in another order", "attention_o.cuh", "i % 2 * 4 + i % 8 / 2", "i % 8"},
    {"the head's vector not over its total", "attention_o.cuh", "merged.a * inverse", "merged.a"},
    {"keys of the tile before", "attention_o.cuh", "stage.keys + i * kTile", "stage.keys + (i > 0 ? i - 1 : 1) * kTile"},
    {"pieces of this step's row in another order", "attention_o.cuh", "piece % kPieces ^ cache_swizzle(kHeadDim, row)", "piece % kPieces ^ 1"},
    {"a head's values for another head", "attention_o.cuh", "make_float4(o[0][odd], o[0][odd + 2],", "make_float4(o[0][1 - odd], o[0][3 - odd],"},
    {"the second half of a block's weights twice", "attention_o.cuh", "low = weights.piece[j * 2], high = weights.piece[j * 2 + 1]",
     "low = weights.piece[j * 2], high = weights.piece[j * 2]"},
    {"a head's sum forgotten by gate/up", "slice_vector.cuh", "for (int s = 1; s < kSums; ++s)", "for (int s = 2; s < kSums; ++s)"},
    {"a head's sum forgotten by down's residual", "slice_unit_end.cuh", "if (wanted(i)) settled +=", "if (i < residuals - 1) settled +="},
    {"the residual in no head's sum", "slice_unit_end.cuh", "task.residual == kNoOffset ? 0 : 1;", "0;"},
};

// Orders between the steps of a launch that are wrong.
const ChangedLine kSteps[] = {
    {"nothing", "block.cuh", "", ""},
    {"nothing, flagged", "block.cuh", "", "", true},
    {"the first step's position in all", "base.cuh", "p.positions[seq] + static_cast<int>(step)", "p.positions[seq]"},
    {"the first step's epoch in all", "block.cuh", "static_cast<int>(step_word<kStepEpoch>()) : p.epoch", "p.epoch : p.epoch"},
    {"the first step's tags in all", "base.cuh", "return tag_base_now();", "return p.tag_base;", true},
    {"one RoPE row for all steps", "block.cuh", "(kPersistent ? step_now() % 2 * kBatch : 0)", "0"},
    {"every step's logits in the first row", "base.cuh", "step_now() * p.step_rows + seq", "seq"},
    {"the argmax written nowhere", "elementwise.cuh", "if (next >= p.given[seq])", "if (next < 0)"},
    {"the argmax over the given text", "elementwise.cuh", "if (next >= p.given[seq])", "if (next > 0)"},
    {"a step that begins without the argmax", "vm.cu", "const u32 count = __ldg(&queue.step_count);", "const u32 count = 0;"},
};

// Kernels that bring other rows of the cache than the consumers take, or take them wrongly. As many as they take: consumers do not keep the time, and
// would wait for what never comes.
const ChangedLine kRingRows[] = {
    {"nothing", "ring.cuh", "", ""},
    {"groups from the oldest on", "ring.cuh", "for (u32 g = groups.end; g-- > groups.begin;)", "for (u32 g = groups.begin; g < groups.end; ++g)"},
    {"keys in the place of values", "ring.cuh", "from + static_cast<u64>(kKvHeads) * kMaxSeq * kCacheRowBytes", "from"},
    {"pieces stored in their plain order", "cache.cuh", "dim ^= cache_swizzle(kHeadDim, position) * 8;", ""},
};

}  // namespace

std::span<const ChangedLine> changed_int8() { return kInt8; }
std::span<const ChangedLine> changed_slices() { return kSlices; }
std::span<const ChangedLine> changed_attention_o() { return kAttentionO; }
std::span<const ChangedLine> changed_steps() { return kSteps; }
std::span<const ChangedLine> changed_ring_rows() { return kRingRows; }

bool change(CompileRequest& request, const ChangedLine& line) {
  if (line.nothing()) return true;
  const std::string_view from = line.from;
  const auto replace = [&](std::string& text) {
    const std::size_t at = text.find(from);
    if (at != std::string::npos) text.replace(at, from.size(), line.to);
    return at != std::string::npos;
  };
  if (request.name == line.file) return replace(request.source);
  for (auto& [name, text] : request.headers)
    if (name == line.file) return replace(text);
  return false;
}

}  // namespace amk::gpu_test
