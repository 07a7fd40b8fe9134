// What the host writes and the device reads. Compiled by both; plain types of fixed width only (NVRTC has no <cstdint>).
#pragma once

namespace amk_vm {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// Publish flagged: activations are packets of 8 bytes, a word and its tag, so that offsets and sizes are doubled.
// One task, 64 bytes, copied to shared memory at launch. Offsets are bytes: `input`, `residual`, `output` in the activation arena,
// `norm`, `bias` in the vector arena; `weight` counts 16-byte pieces of the packed weights. kNoOffset = absent.
constexpr u32 kNoOffset = 0xffffffffu;
struct TaskDesc {
  u8 op;
  u8 matrix;  // of a Gemv; of AttentionTile and Argmax the sequence of the batch
  u16 fused;  // FusedFlag, kSignalsStep
  u32 weight;
  u32 row_begin, row_end;
  u32 input, norm, bias, residual;
  u32 output;
  u32 output2;  // k output (Rope), argmax partial (Gemv, ArgmaxPartial), second input (KvAppend); q and k norm weights, one after the
                // other, in the vector arena (fused Qkv)
  u16 wait_first, wait_count;
  u32 signal;                   // counter, kNoOffset = none
  int pos_lo;                   // below it the task touches nothing
  u16 input_tag, residual_tag;  // publish flagged: producing instruction of the input and of the residual, from 1
  u16 layer, head;
  u16 split, tag;  // tag: of what this task writes
};
constexpr u16 kSignalsStep = 0x100;  // publish flagged, several steps a launch: its signal is a release, for what the next step sees of this one
static_assert(sizeof(TaskDesc) == 64, "copied as four 16-byte pieces");

// In step e a wait holds once counters[counter] - (e * fan_in + target) >= 0 (signed difference).
struct WaitDesc {
  u32 counter, fan_in, target, pad;
};
static_assert(sizeof(WaitDesc) == 16, "copied as one 16-byte piece");

// One ring task of an SM's stream, in load order: weights, or cache rows of an attention task.
enum StreamKind : u32 { kStreamWeights, kStreamWide, kStreamCache };  // wide: its vectors lie where slots kWideSlots and up are
struct StreamDesc {
  u32 weight;       // 16-byte pieces from the packed weights' base; cache: layer
  u32 bytes;        // whole segments; cache: kv head
  u32 chunk_bytes;  // cache: the task's first split
  u32 kind;         // StreamKind; cache: and the sequence, times kStreamKinds
};
static_assert(sizeof(StreamDesc) == 16, "read as one 16-byte piece");
constexpr u32 kStreamKinds = 4;

// Where one SM's part of the tables lies.
struct QueueDesc {
  u32 task_first, task_count;
  u32 wait_first, wait_count;  // TaskDesc::wait_first counts from here
  u32 stream_first, stream_count;
  u32 step_first, step_count;  // several steps a launch: waits, of target 0, before the SM begins a step; among its own, behind those of its tasks
};

// Written by one block that ran out of time; aborted == 0: nobody did.
struct AbortReport {
  u32 aborted;
  u32 sm, task;
  u32 kind;  // AbortKind
  u32 counter, have, need;
  u32 claimed;  // not 0: somebody is writing
};
enum AbortKind : u32 { kAbortCounter = 1, kAbortRing = 2, kAbortPackets = 3 };

constexpr u32 kMaxSequences = 8;

// Kernel parameters: all that changes between launches of one program.
struct Params {
  const u8* weights;    // packed matrices
  const u8* vectors;    // norms, biases: element type of the weights
  const u8* embedding;  // [vocab, hidden] rows
  const float* rope;    // [max_seq][2][head_dim / 2]: cos, sin
  u8* activations;
  u8* kv;           // [sequences][layers][2][kv_heads][max_seq][head_dim]
  float* logits;    // [sequences][vocab]
  int* tokens;      // [sequences][max_seq + 1]: tokens[position] is this step's input
  int* next_token;  // [sequences]: this step's argmax
  int* counters;    // one per kCounterStride ints
  const QueueDesc* queues;
  const TaskDesc* tasks;
  const WaitDesc* waits;
  const StreamDesc* streams;
  AbortReport* abort_report;
  u64* trace;     // compiled-in tracing only
  u64 budget_ns;  // of this launch, for every spin
  int position;
  int epoch;                     // steps these counters have seen
  int feed_back;                 // bit s: also tokens[s][position + 1] = argmax
  u32 tag_base;                  // publish flagged: added to every tag, different in every step
  int positions[kMaxSequences];  // of each sequence; `position` is that of the first
  // Kernels of several steps a launch only (AMK_PERSISTENT); positions and epoch are the first step's. A sequence is at positions[s] + step, but
  // never before 0 or behind last[s]: one that is not yet there, or through, repeats the position.
  int steps;                 // of this launch
  int step_rows;             // rows of `logits` and elements of `next_token` from a step to the next
  u32 step_tags;             // of tag_base, likewise
  int last[kMaxSequences];   // positions
  int given[kMaxSequences];  // tokens[s][0 … given[s]) are the host's; behind them the argmax is written
};

// Byte offsets in a block's dynamic shared memory; the tables (this SM's TaskDescs, then WaitDescs) come last.
struct SharedLayout {
  u32 ring, act, partials, rows, scratch, rope, barriers, partial_barriers, sinks, control, step, tables;
};
constexpr u32 align_up(u32 value, u32 to) { return (value + to - 1) / to * to; }
// `partial_floats`: of one of the two buffers, all sequences together. `several`: steps a launch.
constexpr SharedLayout shared_layout(u32 slots, u32 slot_bytes, u32 act_bytes, u32 partial_floats, u32 head_dim, u32 sink_words, u32 batch,
                                     bool several) {
  SharedLayout s{};
  s.ring = 0;
  s.act = align_up(slots * slot_bytes, 128);
  s.partials = align_up(s.act + act_bytes, 128);
  s.rows = s.partials + 2 * partial_floats * 4;
  // kBatchUnitsMax units of sums; scratch: one float a warp; both, and a row of the RoPE table (of two steps in turn), for each sequence.
  s.scratch = align_up(s.rows + batch * 16 * 8 * 4, 16);
  s.rope = s.scratch + batch * 32 * 4;
  s.barriers = align_up(s.rope + (several ? 2 : 1) * batch * head_dim * 4, 16);
  s.partial_barriers =
      s.barriers + 2 * slots * 8;  // barriers: full and empty of each slot; of a batch also of the two buffers of partial sums, and the finishers'
  s.sinks = s.partial_barriers + (batch > 1 ? 5 * 8 : 0);
  s.control = align_up(s.sinks + sink_words * 4, 16);
  // control: aborted, finished ring tasks, leave, waits' offset, deadline, four bytes spare, leave between steps, report
  s.step = s.control + 64;
  s.tables = s.step + (several ? 32 : 0);  // step: StepWord, the consumers' deadline in it, the producer's
  return s;
}

// The cache's rows as matrix instructions read them (device/attention_mma.cuh): piece `i` (16 bytes) of a row lies at i ^ cache_swizzle. So eight
// lanes at once, of shared memory that holds rows one behind the other, find eight different banks: lane 4g + t reads piece t or t + 4 of position 4
// (g / 2) + g % 2, or piece g of position 4t. Rows whose pieces are not eights keep theirs within fours.
constexpr u32 cache_swizzle(u32 head_dim, u32 position) {
  return head_dim % 64 == 0 ? ((position ^ position >> 2) & 1) << 2 | (position >> 2 & 2) : position >> 2 & 3;
}

// Where attention's partials of a split lie, in words from the split's first record: of Heads query heads, Gqa a kv head, a record being HeadDim
// values and Tail words. In halves (bf16) a kv head's records fill half of their place: the values of all its query heads one behind the other, from
// a whole line on where there is room, then their tails. So a warp that has a kv head's columns brings lines that hold nothing else, and one sector
// of tails: every multiprocessor fetches all of it (docs/lab/megakernel.md, 28).
template <u32 Heads, u32 Gqa, u32 HeadDim, u32 Tail, bool Halves, u32 TailWords>
struct PartialPlaces {
  static constexpr u32 kTailWords = TailWords;
  static constexpr u32 kLine = 32, kRecord = HeadDim + Tail, kValues = Halves ? HeadDim / 2 : HeadDim;
  static constexpr bool kWholeLines = Halves && Heads * kRecord % kLine == 0 && Gqa * kValues >= kLine;
  // Of a query head's values, and of its maximum and total.
  static constexpr u32 values(u32 head) {
    if (!Halves) return head * kRecord;
    const u32 at = head / Gqa * (Gqa * kRecord), skip = kWholeLines ? (kLine - at % kLine) % kLine : 0;
    return at + skip + head % Gqa * kValues;
  }
  static constexpr u32 tail(u32 head) {
    if (!Halves) return head * kRecord + HeadDim;
    return values(head / Gqa * Gqa) + Gqa * kValues + head % Gqa * TailWords;
  }
};

constexpr int kTraceMarks = 8;      // timestamps a task
constexpr int kCounterStride = 32;  // ints: one 128-byte line a counter

}  // namespace amk_vm
