// Numbers that the host compiled in, and small arithmetic. Every macro below comes from device_compile.cpp.
#pragma once

#include "layout.cuh"

namespace amk_vm {

#define kInfinity __int_as_float(0x7f800000)

// Element types of weights, activations, KV cache.
enum Type { kF32 = 0, kF16 = 1, kBF16 = 2 };
constexpr int kWeightType = AMK_WEIGHT_TYPE, kActType = AMK_ACT_TYPE, kKvType = AMK_KV_TYPE;
template <int T>
constexpr int kBytesOf = T == kF32 ? 4 : 2;
constexpr bool kInt8 = AMK_INT8;                                 // matrices: int8 with a scale a row; kWeightType is that of everything else
constexpr int kMatrixBytes = kInt8 ? 1 : kBytesOf<kWeightType>;  // of an element
constexpr int kStagedBytes = kInt8 ? 3 : kBytesOf<kWeightType>;  // of an element of the vector, as products read it

constexpr int kHidden = AMK_HIDDEN, kInter = AMK_INTER, kHeads = AMK_HEADS, kKvHeads = AMK_KV_HEADS, kHeadDim = AMK_HEAD_DIM, kVocab = AMK_VOCAB;
constexpr int kGqa = kHeads / kKvHeads, kQRows = kHeads * kHeadDim, kKvRows = kKvHeads * kHeadDim;
constexpr int kMaxSeq = AMK_MAX_SEQ, kSlidingWindow = AMK_SLIDING_WINDOW;  // 0: none
constexpr bool kQkNorm = AMK_QK_NORM;
constexpr float kEps = AMK_RMS_EPS;

constexpr int kConsumerWarps = AMK_CONSUMER_WARPS, kConsumers = kConsumerWarps * 32;
constexpr int kBlockThreads = kConsumers + 32;  // that work
constexpr int kLaunchThreads = AMK_CONSUMER_REGISTERS > 0 ? kConsumers + 128 : kBlockThreads;
// Two warps of the producer's group finish what consumers multiply (finishers.cuh).
constexpr bool kFinishers = AMK_FINISHERS;
constexpr int kSlots = AMK_RING_SLOTS, kSlotBytes = AMK_SLOT_BYTES, kWindow = AMK_WINDOW, kDepth = AMK_DEPTH,
              kBoost = AMK_BOOST;  // kSlots 0: direct loads
constexpr int kKvBlock = AMK_KV_BLOCK, kSplits = AMK_SPLITS, kSplitStep = AMK_SPLIT_STEP;
// Attention by matrix instructions, and the cache's rows as these read them. kCacheGroup: positions of a ring chunk of the cache, where at least
// kCacheRingFrom of a split come that way; 0: warps load all of it themselves.
constexpr bool kAttentionMma = AMK_ATTENTION_MMA;
constexpr u32 kCacheGroup = AMK_CACHE_GROUP, kCacheRingFrom = AMK_CACHE_RING_FROM;
static_assert(!kAttentionMma || (kKvType == kBF16 && kActType == kBF16 && kWeightType == kBF16 && kHeadDim % 32 == 0 && kHeadDim <= 128 && kGqa <= 8),
              "what the instructions can do");
constexpr bool kMma = AMK_MMA, kPackedLayout = AMK_PACKED;
constexpr bool kSlices = AMK_SLICES;  // slices.cuh
// Attention and O are one instruction (slices.cuh), whose result, the residual between attention and the MLP, is a sum a kv head.
constexpr bool kAttentionO = AMK_ATTENTION_O;
// Rows of keys, and of values, that its tasks have in shared memory before their wait, as many as there is room for: attention_slices.cuh.
constexpr u32 kStagedRows = AMK_STAGED_ROWS;
constexpr u32 kHeadUnits = AMK_HEAD_UNITS;  // of a task that are multiplied at once, a warp each, at most
constexpr bool kConfirmed = AMK_PUBLISH == 1, kFlagged = AMK_PUBLISH == 2;
constexpr u32 kKvNow = AMK_KV_NOW;  // flagged: where in the arena this step's k and v rows are published besides the cache
constexpr bool kHoist = AMK_HOIST;  // the ring is long enough that a warp may open a task's first segment before the task's wait
constexpr bool kBulk = AMK_BULK;
constexpr bool kFullBarriers = AMK_FULL_BARRIERS;  // for racecheck: PlanOptions::full_barriers
// Several steps a launch: the argmax is the next step's token. 0: none of what follows costs an instruction.
constexpr bool kPersistent = AMK_PERSISTENT;
// Sequences of a launch. Every activation buffer has a slice for each, one after the other.
constexpr u32 kBatch = AMK_BATCH;
constexpr u32 kLayers = AMK_LAYERS, kArgmaxPartials = AMK_ARGMAX_PARTIALS;
constexpr u32 kActStride = AMK_ACT_STRIDE;  // bytes from one sequence's staged vector to the next
// Where several sequences' vectors of down would leave too little for the ring, they take the place of its slots from kWideSlots on: during down the
// ring has only those before. 0: every task has room of its own.
constexpr u32 kWideSlots = AMK_WIDE_SLOTS, kWideStride = AMK_WIDE_STRIDE;
static_assert(kWideSlots == 0 || kSlots <= 31, "a bit a slot");
// Several sequences' vectors of down, and of O, in registers: each warp loads what its own columns meet, so many segments of each unit, straight from
// L2 (gemv_direct.cuh). 0: they are staged like the others. kConsumerRegisters: what a consumer thread then has, of those that the
// producer's warps leave over.
constexpr int kDownSegs = AMK_DOWN_SEGS, kOSegs = AMK_O_SEGS, kConsumerRegisters = AMK_CONSUMER_REGISTERS;
// O merges attention's partials itself; where it takes its vectors directly, each warp those of its own columns, which attention has then stored in
// the order of products. Where every sequence is in its first KV block there is nothing to merge.
constexpr bool kMergesInO = AMK_MERGES_IN_O, kMergesDirect = kMergesInO && kOSegs > 0;
constexpr int kUnit = 8;         // rows of a unit: core/program/packing.h
constexpr int kPartialTail = 4;  // floats behind a head's partial: maximum, sum, two unused
constexpr int kBatchUnitsMax = 16;
// Finishers: so many threads have a sequence, and each of them four rows of a batch.
constexpr u32 kFinishQuads = kBatch <= 2 ? 32 : kBatch <= 4 ? 16 : 8;
constexpr u32 kBatchUnits = kFinishers ? kFinishQuads / 2 : kBatchUnitsMax;
constexpr int kSlotArrivals = AMK_SLOT_ARRIVALS;    // segments of a full chunk, at most
constexpr int kPartialFloats = AMK_PARTIAL_FLOATS;  // of one sequence in one of the two buffers
constexpr int kActBytes = AMK_ACT_BYTES;

// As core/program/program.h numbers them; device_tasks.cpp compares.
enum OpId : u32 {
  kOpEmbed,
  kOpRmsNorm,
  kOpGemv,
  kOpRope,
  kOpKvAppend,
  kOpAttentionTile,
  kOpAttentionCombine,
  kOpSiluMul,
  kOpAdd,
  kOpArgmaxPartial,
  kOpArgmax,
  kOpAttentionO
};
enum MatrixId : u32 { kNoMatrix, kQkv, kO, kGateUp, kDown, kLmHead };
enum FusedFlag : u32 { kFusedNorm = 1, kFusedRopeAppend = 2, kFusedSiluMul = 4, kFusedResidualAdd = 8, kFusedArgmax = 16, kFusedCombine = 32 };

// How a matrix of one width is worked on. Columns are padded to blocks of 64; a segment is what one warp takes at a time: `groups` groups of
// kGroupBlocks blocks, by 8 rows (packed layout) or one (row layout).
constexpr int kGroupBlocks = AMK_GROUP_BLOCKS;
constexpr int kSegRows = kPackedLayout ? kUnit : 1;
constexpr int kBlockBytes = kSegRows * 64 * kMatrixBytes, kBlockVectorBytes = 64 * kStagedBytes;
static_assert(!kInt8 || (kMma && kPackedLayout && kWeightType != kF32), "the host sees to it");
struct Shape {
  u32 columns, padded;
  u32 segs;    // of a unit (packed) or row
  u32 groups;  // of a segment
  u32 seg_bytes, seg_vector_bytes;
  u32 segs_per_chunk;
  u32 unit_sums;    // partial sums of a row: a warp adds up its own segments of a unit
  u32 unit_stride;  // floats of a unit's partial sums; the pad keeps four units on different banks
  u32 batch_units;
  u32 skip_units, skip_segs;       // kConsumerWarps = skip_units * segs + skip_segs: from one of a warp's segments to its next
  u32 skip_chunks, skip_in_chunk;  // likewise by chunks
  u8 first_unit[32], first_column[32], first_chunk[32], first_in_chunk[32];  // a warp's first segment
};
constexpr Shape shape_of(u32 columns, u32 seg_blocks) {
  Shape s{};
  const u32 blocks = (columns + 63) / 64;
  s.columns = columns;
  s.padded = blocks * 64;
  s.segs = blocks / seg_blocks;
  s.groups = seg_blocks / kGroupBlocks;
  s.seg_bytes = seg_blocks * kBlockBytes;
  s.seg_vector_bytes = seg_blocks * kBlockVectorBytes;
  s.segs_per_chunk = kSlots > 0 ? kSlotBytes / s.seg_bytes : 1;
  s.unit_sums = kPackedLayout && s.segs > kConsumerWarps ? kConsumerWarps : s.segs;
  s.unit_stride = s.unit_sums * kUnit + kUnit;
  const u32 align = kQkNorm && columns == kHidden ? kHeadDim / kUnit : 1;  // a head's norm needs the whole head in one batch
  const u32 fit = kPartialFloats / s.unit_stride;
  s.batch_units = (fit < kBatchUnits ? fit : kBatchUnits) / align * align;
  s.skip_units = kConsumerWarps / s.segs;
  s.skip_segs = kConsumerWarps % s.segs;
  s.skip_chunks = kConsumerWarps / s.segs_per_chunk;
  s.skip_in_chunk = kConsumerWarps % s.segs_per_chunk;
  for (u32 w = 0; w < kConsumerWarps; ++w) {
    s.first_unit[w] = w / s.segs;
    s.first_column[w] = w % s.segs;
    s.first_chunk[w] = w / s.segs_per_chunk;
    s.first_in_chunk[w] = w % s.segs_per_chunk;
  }
  return s;
}
constexpr Shape kHiddenShape = shape_of(kHidden, AMK_SEG_HIDDEN), kQShape = shape_of(kQRows, AMK_SEG_Q),
                kInterShape = shape_of(kInter, AMK_SEG_INTER);
static_assert(kHiddenShape.batch_units > 0 && kQShape.batch_units > 0 && kInterShape.batch_units > 0, "a unit's partial sums fit their buffer");
static_assert(AMK_SEG_HIDDEN % kGroupBlocks == 0 && AMK_SEG_Q % kGroupBlocks == 0 && AMK_SEG_INTER % kGroupBlocks == 0, "a segment is whole groups");
static_assert(kSlots == 0 || (kHiddenShape.segs_per_chunk > 0 && kQShape.segs_per_chunk > 0 && kInterShape.segs_per_chunk > 0),
              "a chunk is whole segments");
constexpr bool kOneGroup = kHiddenShape.groups == 1 && kQShape.groups == 1 && kInterShape.groups == 1;
// Two groups a segment, as the host chooses them for more than four sequences: each group's part of the vectors may stay in registers of its own.
constexpr bool kPairGroups = kBatch > 1 && kHiddenShape.groups == 2 && kQShape.groups == 2 && kInterShape.groups == 2;
constexpr bool kOneChunkShape = kHiddenShape.seg_bytes == kQShape.seg_bytes && kHiddenShape.seg_bytes == kInterShape.seg_bytes;
__constant__ Shape shapes[3] = {kHiddenShape, kQShape, kInterShape};
__device__ __forceinline__ const Shape& shape_for(u32 matrix) { return shapes[matrix == kO ? 1 : matrix == kDown ? 2 : 0]; }

// Where an int8 matrix' scales lie in the vector arena: kernels/megakernel/gpu_layout.h.
__device__ __forceinline__ u32 scale_offset(u32 matrix, u32 layer) {
  constexpr u32 kOAt = kQRows + 2 * kKvRows, kGateUpAt = kOAt + kHidden, kDownAt = kGateUpAt + 2 * kInter, kLayerRows = kDownAt + kHidden;
  if (matrix == kLmHead) return AMK_SCALES_LM_HEAD;
  return AMK_SCALES + (layer * kLayerRows + (matrix == kQkv ? 0 : matrix == kO ? kOAt : matrix == kGateUp ? kGateUpAt : kDownAt)) * 4;
}

// Bytes of one sequence's slice of a buffer in the arena.
template <int T>
__device__ constexpr u32 slice_bytes(u32 elements) {
  return elements * kBytesOf<T> * (kFlagged ? 2 : 1);
}
// Of the step of the launch that this block's consumers are in; block.cuh.
__device__ __forceinline__ u32 step_now();
__device__ __forceinline__ int first_position_now();
__device__ __forceinline__ u32 tag_base_now();
// Of a sequence in some step of the launch.
__device__ __forceinline__ int position_at(const Params& p, u32 seq, u32 step) {
  if constexpr (kPersistent) {
    const int position = p.positions[seq] + static_cast<int>(step);
    return position < 0 ? 0 : position < p.last[seq] ? position : p.last[seq];
  }
  if constexpr (kBatch == 1) return p.position;
  return p.positions[seq];
}
__device__ __forceinline__ int position_of(const Params& p, u32 seq) {
  if constexpr (kPersistent && kBatch == 1) return first_position_now();
  return position_at(p, seq, step_now());
}
// Added to every tag of this step.
__device__ __forceinline__ u32 tag_base(const Params& p) {
  if constexpr (kPersistent) return tag_base_now();
  return p.tag_base;
}
// Of this step and sequence.
__device__ __forceinline__ float* logits_of(const Params& p, u32 seq) {
  if constexpr (kPersistent) return p.logits + static_cast<u64>(step_now() * p.step_rows + seq) * kVocab;
  return p.logits + seq * kVocab;
}
// The one sequence of an attention or argmax task.
__device__ __forceinline__ u32 sequence_of(const TaskDesc& task) { return kBatch == 1 ? 0 : task.matrix; }

// Several sequences whose norms go to registers: where an even element of the residual lies, so that the lanes of products load it as they need it.
// Of every 64 columns: the m-th even or odd pair of the t-th sixteen.
constexpr bool kNormDirect = AMK_NORM_DIRECT;
__device__ __forceinline__ u32 residual_order(u32 element) {
  if constexpr (!kNormDirect) return element;
  const u32 t = element % 64 / 16, m = element % 16 / 4, odd = element % 4 / 2;
  return element / 64 * 64 + m / 2 * 32 + odd * 16 + t * 4 + m % 2 * 2;
}

__device__ __forceinline__ float bf16_low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float bf16_high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ __forceinline__ u32 pack_bf16(float low, float high) {
  u32 out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
__device__ __forceinline__ float f16_to_float(u16 bits) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(bits));
  return out;
}
__device__ __forceinline__ u32 pack_f16(float low, float high) {
  // Beyond fp16's range the largest finite value: an infinity would turn into NaN in the next product.
  low = fminf(fmaxf(low, -65504.0f), 65504.0f);
  high = fminf(fmaxf(high, -65504.0f), 65504.0f);
  u32 out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}

template <int T>
__device__ __forceinline__ void unpack_pair(u32 pair, float& low, float& high) {
  if constexpr (T == kBF16) {
    low = bf16_low(pair);
    high = bf16_high(pair);
  } else {
    low = f16_to_float(static_cast<u16>(pair));
    high = f16_to_float(static_cast<u16>(pair >> 16));
  }
}
template <int T>
__device__ __forceinline__ u32 pack_pair(float low, float high) {
  return T == kBF16 ? pack_bf16(low, high) : pack_f16(low, high);
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}

// exp2 by the special-function unit: relative error about 2^-22, repeatable.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// rsqrtf of a number that is not subnormal: without the steps that those take.
__device__ __forceinline__ float rsqrt_normal(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Approximate division (2 ulp): the exact one is four times the instructions, and code that runs once a task is paid by the instruction.
__device__ __forceinline__ float silu(float x) { return __fdividef(x, 1.0f + fast_exp2(-1.4426950408889634f * x)); }

}  // namespace amk_vm
