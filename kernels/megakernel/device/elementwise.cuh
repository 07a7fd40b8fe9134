// The operators that are not GEMVs or attention tiles, and their unfused forms. All consumer warps; one thread signals.
#pragma once

#include "epilogue.cuh"
#include "stage.cuh"

namespace amk_vm {

__device__ __forceinline__ float load_act(const u8* base, u64 element) {
  if constexpr (kActType == kF32) return load_l2(reinterpret_cast<const float*>(base) + element);
  const u16 bits = load_l2(reinterpret_cast<const u16*>(base) + element);
  return kActType == kBF16 ? __uint_as_float(static_cast<u32>(bits) << 16) : f16_to_float(bits);
}

__device__ __forceinline__ const float* floats(const Params& p, u32 offset) { return reinterpret_cast<const float*>(p.activations + offset); }

__device__ __forceinline__ void embed(const Params& p, const TaskDesc& task, Publisher& out) {
  const auto element = [&](u32 seq, u32 i) {
    const int token = *reinterpret_cast<const volatile int*>(p.tokens + seq * (kMaxSeq + 1) + position_of(p, seq));
    const u8* row = p.embedding + static_cast<u64>(token) * kHidden * kBytesOf<kWeightType>;
    out.word(p.activations + task.output + seq * slice_bytes<kF32>(kHidden), kNormDirect ? residual_order(i / 2 * 2) + i % 2 : i,
             __float_as_uint(vector1(row, i)));
  };
  if constexpr (kBatch == 1) {
    for (u32 i = task.row_begin + thread_index(); i < task.row_end; i += kConsumers) element(0, i);
  } else {  // every sequence's at once
    const u32 rows = task.row_end - task.row_begin;
    for (u32 i = thread_index(); i < rows * kBatch; i += kConsumers) element(i / rows, task.row_begin + i % rows);
  }
}

__device__ __forceinline__ void rms_norm(const Block& block, const Params& p, const TaskDesc& task, u32 seq, Publisher& out) {
  const float* x = floats(p, task.input) + seq * kHidden;
  float squares = 0.0f;
  for (u32 i = thread_index(); i < kHidden; i += kConsumers) {
    const float v = load_l2(x + i);
    squares = fmaf(v, v, squares);
  }
  squares = warp_sum(squares);
  if (thread_index() % 32 == 0) block.scratch(seq)[thread_index() / 32] = squares;
  consumer_barrier();
  float total = 0.0f;
  for (int w = 0; w < kConsumerWarps; ++w) total += block.scratch(seq)[w];
  const float scale = rsqrtf(total / static_cast<float>(kHidden) + kEps);
  // Rows of a task are whole units, so pairs do not straddle tasks.
  for (u32 i = task.row_begin + thread_index() * 2; i < task.row_end; i += kConsumers * 2) {
    const float a = load_l2(x + i) * scale * vector1(p.vectors + task.norm, i),
                b = load_l2(x + i + 1) * scale * vector1(p.vectors + task.norm, i + 1);
    out.pair<kActType>(p.activations + task.output + seq * slice_bytes<kActType>(kHidden), i, a, b);
  }
}

// Heads [row_begin, row_end), q heads first: one warp a head; qk-norm, then rotation. Input fp32 in natural order.
__device__ __forceinline__ void rope(const Block& block, const Params& p, const TaskDesc& task, u32 seq, Publisher& out) {
  const u32 lane = thread_index() % 32;
  for (u32 head = task.row_begin + thread_index() / 32; head < task.row_end; head += kConsumerWarps) {
    const float* in = floats(p, task.input) + seq * (kQRows + 2 * kKvRows) + head * kHeadDim;
    const bool is_q = head < kHeads;
    float scale = 1.0f;
    if (kQkNorm) {
      float squares = 0.0f;
      for (u32 i = lane; i < kHeadDim; i += 32) squares = fmaf(load_l2(in + i), load_l2(in + i), squares);
      scale = rsqrtf(warp_sum(squares) / static_cast<float>(kHeadDim) + kEps);
    }
    u8* buffer = p.activations + (is_q ? task.output + seq * slice_bytes<kActType>(kQRows) : task.output2 + seq * slice_bytes<kF32>(kKvRows));
    const u64 base = static_cast<u64>(is_q ? head : head - kHeads) * kHeadDim;
    for (u32 i = lane * 2; i < kHeadDim / 2; i += 64) {
      float a[2], b[2];
      for (u32 j = 0; j < 2; ++j) {
        float x = load_l2(in + i + j) * scale, y = load_l2(in + kHeadDim / 2 + i + j) * scale;
        if (kQkNorm) {
          const u8* weights = p.vectors + task.norm;
          x *= vector1(weights, (is_q ? 0 : kHeadDim) + i + j);
          y *= vector1(weights, (is_q ? 0 : kHeadDim) + kHeadDim / 2 + i + j);
        }
        rotate(block.rope(seq), i + j, x, y, a[j], b[j]);
      }
      if (is_q) {
        out.pair<kActType>(buffer, base + i, a[0], a[1]);
        out.pair<kActType>(buffer, base + kHeadDim / 2 + i, b[0], b[1]);
      } else {
        out.pair<kF32>(buffer, base + i, a[0], a[1]);
        out.pair<kF32>(buffer, base + kHeadDim / 2 + i, b[0], b[1]);
      }
    }
  }
}

__device__ __forceinline__ void kv_append(const Params& p, const TaskDesc& task, u32 seq, Publisher& out) {
  const int position = position_of(p, seq);
  const float* k = floats(p, task.input) + seq * kKvRows;
  const float* v = floats(p, task.output2) + seq * (kQRows + 2 * kKvRows) + kQRows + kKvRows;  // the v rows of the unfused qkv
  for (u32 i = task.row_begin * kHeadDim + thread_index() * 2; i < task.row_end * kHeadDim; i += kConsumers * 2) {
    const u32 head = i / kHeadDim, element = i % kHeadDim;
    out.cache_pair<kKvType>(p.kv, cache_element(seq, task.layer, 0, head, position, element), load_l2(k + i), load_l2(k + i + 1));
    out.cache_pair<kKvType>(p.kv, cache_element(seq, task.layer, 1, head, position, element), load_l2(v + i), load_l2(v + i + 1));
  }
}

__device__ __forceinline__ void attention_combine(const Block& block, const Params& p, const TaskDesc& task, u32 index, Publisher& out) {
  constexpr u32 kPlacesPerHead = kGqa * kHeadDim / kPlace;  // of a kv head
#pragma unroll 1
  for (u32 seq = 0; seq < kBatch; ++seq) {
    const u32 end = task.row_end * kPlacesPerHead;
    u8* buffer = p.activations + task.output + seq * slice_bytes<kActType>(kQRows);
#pragma unroll 1
    for (u32 first = task.row_begin * kPlacesPerHead + thread_index(); first < end; first += kConsumers) {
      PartialPlace places[1];
      places[0].find(p, task, seq, first);
      combine_some<1>(block, p, task, index, seq, places, first, end, [&](int, const Elements& v) {
#pragma unroll
        for (u32 e = 0; e < kPlace; e += 2)
          out.pair<kActType>(buffer, kOSegs == 0 ? first * kPlace + e : pair_order(first * kPlace + e), v.e[e], v.e[e + 1]);
      });
    }
  }
}

// Input [gate | up] in natural order.
__device__ __forceinline__ void silu_mul(const Params& p, const TaskDesc& task, u32 seq, Publisher& out) {
  const float* gate = floats(p, task.input) + seq * (2 * kInter);
  const float* up = gate + kInter;
  for (u32 i = task.row_begin + thread_index() * 2; i < task.row_end; i += kConsumers * 2) {
    out.pair<kActType>(p.activations + task.output + seq * slice_bytes<kActType>(kInter), kDownSegs == 0 ? i : pair_order(i),
                       silu(load_l2(gate + i)) * load_l2(up + i), silu(load_l2(gate + i + 1)) * load_l2(up + i + 1));
  }
}

__device__ __forceinline__ void add_residual(const Params& p, const TaskDesc& task, u32 seq, Publisher& out) {
  u8* buffer = p.activations + task.output + seq * slice_bytes<kF32>(kHidden);
  const u32 slice = seq * kHidden;
  for (u32 i = task.row_begin + thread_index(); i < task.row_end; i += kConsumers) {
    out.word(buffer, i, __float_as_uint(load_l2(floats(p, task.residual) + slice + i) + load_l2(floats(p, task.input) + slice + i)));
  }
}

// The best of `candidates` over all consumer threads, in thread 0.
__device__ __forceinline__ Best block_best(const Block& block, Best best) {
  best.reduce_warp();
  float* values = block.scratch();
  u32* indices = reinterpret_cast<u32*>(block.rows());
  if (thread_index() % 32 == 0) {
    values[thread_index() / 32] = best.value;
    indices[thread_index() / 32] = best.index;
  }
  consumer_barrier();
  for (int w = 0; w < kConsumerWarps; ++w) best.take(values[w], indices[w]);
  return best;
}

__device__ __forceinline__ void argmax_partial(const Block& block, const Params& p, const TaskDesc& task, u32 seq, Publisher& out) {
  const float* logits = logits_of(p, seq);
  u8* buffer = p.activations + task.output2 + seq * slice_bytes<kF32>(kArgmaxPartials * 2);
  Best best = no_best();
  for (u32 i = task.row_begin + thread_index(); i < task.row_end; i += kConsumers) best.take(load_l2(logits + i), i);
  best = block_best(block, best);
  if (thread_index() != 0) return;
  out.word(buffer, 0, __float_as_uint(best.value));
  out.word(buffer, 1, best.index);
}

// The step's token of a sequence, by one thread.
__device__ __forceinline__ void publish_token(const Params& p, u32 seq, const Best& best, Publisher& out) {
  const int token = best.index < kVocab ? static_cast<int>(best.index) : 0;  // logits that are all NaN: still a token, the gate sees the logits
  if constexpr (kPersistent) {
    const int next = position_of(p, seq) + 1;
    p.next_token[step_now() * p.step_rows + seq] = token;
    if (next >= p.given[seq]) out.outside(p.tokens + seq * (kMaxSeq + 1) + next, static_cast<u32>(token));
    return;
  }
  p.next_token[seq] = token;
  if (kBatch == 1 ? p.feed_back != 0 : (p.feed_back >> seq & 1) != 0) p.tokens[seq * (kMaxSeq + 1) + position_of(p, seq) + 1] = token;
}

__device__ __forceinline__ void argmax(const Block& block, const Params& p, const TaskDesc& task, u32 index, Publisher& out) {
  const u32 seq = sequence_of(task);
  const u8* partials = p.activations + task.input + seq * slice_bytes<kF32>(kArgmaxPartials * 2);
  Best best = no_best();
  for (u32 i = thread_index(); i < task.row_end; i += kConsumers) {
    if constexpr (kFlagged) {
      u64 value, at;
      u32 polls = 0;
      const u32 tag = tag_base(p) + task.input_tag;
      do {
        asm volatile("ld.relaxed.gpu.global.v2.u64 {%0,%1}, [%2];" : "=l"(value), "=l"(at) : "l"(partials + i * 16));
        if (++polls % kPollsPerCheck == 0 && out_of_time(block, p, kAbortPackets, index)) break;
      } while (static_cast<u32>(value >> 32) != tag || static_cast<u32>(at >> 32) != tag);
      best.take(__uint_as_float(static_cast<u32>(value)), static_cast<u32>(at));
    } else {
      const u32* pair = reinterpret_cast<const u32*>(partials) + i * 2;
      best.take(__uint_as_float(load_l2(pair)), load_l2(pair + 1));
    }
  }
  best = block_best(block, best);
  if (thread_index() != 0) return;
  publish_token(p, seq, best, out);
}

// The task's output is stored and its signal sent when this returns in thread 0; the others run ahead only to the next barrier.
__device__ __noinline__ bool elementwise(const Block& block, const Params& p, const TaskDesc& task, u32 index) {
  if (!wait_dependencies(block, p, task, index, kSlices ? kWaitPackets : kWaitCounters)) return false;
  Publisher out;
  out.tag = tag_base(p) + task.tag;
  // Of several sequences these run at every position: pos_lo is 0 for them.
  if (kBatch > 1 || position_of(p, 0) >= task.pos_lo) {
    const auto each = [](auto work) {
#pragma unroll 1
      for (u32 seq = 0; seq < kBatch; ++seq) work(seq);
    };
    switch (task.op) {
      case kOpEmbed:
        embed(p, task, out);
        break;
      case kOpRmsNorm:
        each([&](u32 seq) { rms_norm(block, p, task, seq, out); });
        break;
      case kOpRope:
        each([&](u32 seq) { rope(block, p, task, seq, out); });
        break;
      case kOpKvAppend:
        each([&](u32 seq) { kv_append(p, task, seq, out); });
        break;
      case kOpAttentionCombine:
        attention_combine(block, p, task, index, out);
        break;
      case kOpSiluMul:
        each([&](u32 seq) { silu_mul(p, task, seq, out); });
        break;
      case kOpAdd:
        each([&](u32 seq) { add_residual(p, task, seq, out); });
        break;
      case kOpArgmaxPartial:
        each([&](u32 seq) {
          argmax_partial(block, p, task, seq, out);
          if (kBatch > 1) consumer_barrier();  // the next one's candidates go where thread 0 has just looked
        });
        break;
      case kOpArgmax:
        argmax(block, p, task, index, out);
        break;
    }
  }
  out.settle(block.sink());
  consumer_barrier();
  if (thread_index() == 0 && task.signal != kNoOffset) signal_counter(p.counters + task.signal * kCounterStride, (task.fused & kSignalsStep) != 0);
  trace_mark(p, index, kMarkPublished, thread_index() == 0);
  return true;
}

}  // namespace amk_vm
