// What the warps of a block share, and every wait. A wait that lasts longer than the launch's budget writes what it waited for and makes
// all blocks leave: each loop over tasks stops at `aborted`.
#pragma once

#include "trace.cuh"

namespace amk_vm {

constexpr SharedLayout kShared =
    shared_layout(kSlots, kSlotBytes, kActBytes, kPartialFloats* kBatch, kHeadDim, kConfirmed ? kFinishers ? kLaunchThreads : kConsumers : 0, kBatch,
                  kPersistent ? kBlockThreads / 32 : 0);
constexpr u32 kPollsPerCheck = 64;  // between looks at the clock: a poll is a trip to L2, a look is not free either

extern __shared__ __align__(128) u8 shared_base[];

// Several steps a launch: what of them the consumers are in lies in shared memory, where no register is held for it through the loop over tasks. It
// is read at fixed addresses: an address made from the thread's number would stall each reader.
enum StepWord : u32 { kStepNumber, kStepPosition, kStepTags, kStepEpoch };  // position: of the first sequence
template <StepWord Word>
__device__ __forceinline__ u32 step_word() {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(shared_address(shared_base) + kShared.step + Word * 4));
  return v;
}
__device__ __forceinline__ u32 step_now() {
  if constexpr (!kPersistent) return 0;
  return step_word<kStepNumber>();
}
__device__ __forceinline__ int first_position_now() { return static_cast<int>(step_word<kStepPosition>()); }
__device__ __forceinline__ u32 tag_base_now() { return step_word<kStepTags>(); }
// By one thread while no consumer reads.
__device__ __forceinline__ void enter_step(const Params& p, u32 step) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(shared_base) + kShared.step), "r"(step), "r"(position_at(p, 0, step)),
               "r"(p.tag_base + step * p.step_tags), "r"(p.epoch + static_cast<int>(step))
               : "memory");
}

// A task's staged input vectors.
struct Vectors {
  u8* base;
  u32 stride;
  __device__ __forceinline__ u8* of(u32 seq) const { return base + seq * stride; }
};

// Addresses only: an empty object, so that passing it costs nothing.
struct Block {
  __device__ __forceinline__ u32 base() const { return shared_address(shared_base); }
  __device__ __forceinline__ u32 sm() const { return blockIdx.x; }
  __device__ __forceinline__ u32 full(u32 slot) const { return base() + kShared.barriers + slot * 8; }
  __device__ __forceinline__ u32 empty(u32 slot) const { return base() + kShared.barriers + (kSlots + slot) * 8; }
  // Several sequences: all warps' sums of a batch of rows are in buffer b; every sequence's warp has read them.
  __device__ __forceinline__ u32 sums_full(u32 b) const { return base() + kShared.partial_barriers + b * 8; }
  __device__ __forceinline__ u32 sums_empty(u32 b) const { return base() + kShared.partial_barriers + (2 + b) * 8; }
  // Both warps that finish rows have stored a task's.
  __device__ __forceinline__ u32 rows_stored() const { return base() + kShared.partial_barriers + 32; }
  __device__ __forceinline__ u32 sink() const { return base() + kShared.sinks + thread_index() * 4; }  // confirmed: a word a thread
  __device__ __forceinline__ volatile int& leave() const { return *reinterpret_cast<volatile int*>(shared_base + kShared.control + 8); }
  __device__ __forceinline__ volatile int& aborted() const { return *reinterpret_cast<volatile int*>(shared_base + kShared.control); }
  // Ring tasks that the consumers have finished: one warp counts, the producer looks. Atomic on both sides, as no barrier lies between them.
  __device__ __forceinline__ int& finished_tasks() const { return *reinterpret_cast<int*>(shared_base + kShared.control + 4); }
  __device__ __forceinline__ int finished_so_far() const { return atomicAdd(&finished_tasks(), 0); }
  __device__ __forceinline__ volatile u64& deadline_ns() const { return *reinterpret_cast<volatile u64*>(shared_base + kShared.control + 16); }
  // Several steps a launch: when a wait of a step must be over, the consumers' and the producer's.
  __device__ __forceinline__ volatile u64& step_deadline_ns(bool producer) const {
    return *reinterpret_cast<volatile u64*>(shared_base + kShared.step + 16 + (producer ? 8 : 0));
  }
  __device__ __forceinline__ volatile int& leave_step() const { return *reinterpret_cast<volatile int*>(shared_base + kShared.control + 28); }
  __device__ __forceinline__ volatile AbortReport& report() const {
    return *reinterpret_cast<volatile AbortReport*>(shared_base + kShared.control + 32);
  }
  __device__ __forceinline__ float* partials(u32 b, u32 seq = 0) const {
    return reinterpret_cast<float*>(shared_base + kShared.partials) + (b * kBatch + seq) * kPartialFloats;
  }
  __device__ __forceinline__ float* rows(u32 seq = 0) const {
    return reinterpret_cast<float*>(shared_base + kShared.rows) + seq * kBatchUnitsMax * kUnit;
  }
  __device__ __forceinline__ float* scratch(u32 seq = 0) const { return reinterpret_cast<float*>(shared_base + kShared.scratch) + seq * 32; }
  // Of this step: two rows a sequence where steps follow in one launch, since a warp may be a step behind.
  __device__ __forceinline__ const float* rope(u32 seq = 0) const {
    return reinterpret_cast<const float*>(shared_base + kShared.rope) + (seq + (kPersistent ? step_now() % 2 * kBatch : 0)) * kHeadDim;
  }
  __device__ __forceinline__ u8* act() const { return shared_base + kShared.act; }
  __device__ __forceinline__ Vectors vectors(bool wide) const {
    if constexpr (kWideSlots == 0) return {act(), kActStride};
    return wide ? Vectors{shared_base + kShared.ring + kWideSlots * kSlotBytes, kWideStride} : Vectors{act(), kActStride};
  }
  __device__ __forceinline__ u32& waits_offset() const { return *reinterpret_cast<u32*>(shared_base + kShared.control + 12); }
  __device__ __forceinline__ const WaitDesc* waits() const { return reinterpret_cast<const WaitDesc*>(shared_base + waits_offset()); }
  __device__ __forceinline__ const TaskDesc& task(u32 i) const { return reinterpret_cast<const TaskDesc*>(shared_base + kShared.tables)[i]; }
};

// One element of a norm weight, bias or embedding row.
__device__ __forceinline__ float vector1(const u8* vectors, u32 element) {
  if constexpr (kWeightType == kF32) return __ldg(reinterpret_cast<const float*>(vectors) + element);
  const u16 bits = __ldg(reinterpret_cast<const u16*>(vectors) + element);
  return kWeightType == kBF16 ? __uint_as_float(static_cast<u32>(bits) << 16) : f16_to_float(bits);
}

// Four neighbouring weights of a vector (norm, bias) as floats.
__device__ __forceinline__ float4 vector4(const u8* vectors, u32 element) {
  if constexpr (kWeightType == kF32) {
    return __ldg(reinterpret_cast<const float4*>(vectors) + element / 4);
  } else {
    const uint2 v = __ldg(reinterpret_cast<const uint2*>(vectors) + element / 4);
    float4 out;
    unpack_pair<kWeightType>(v.x, out.x, out.y);
    unpack_pair<kWeightType>(v.y, out.z, out.w);
    return out;
  }
}

// When a wait has lasted too long: the launch's budget, or a step's since it began.
__device__ __forceinline__ u64 deadline_of(const Block& block) {
  return kPersistent ? block.step_deadline_ns(thread_index() >= kConsumers) : block.deadline_ns();
}

// True when this launch is over: somebody ran out of time, or this thread just did and leaves what it waited for in `report`. Inline: a call
// in a loop's rare path would cost its registers in the frequent one.
__device__ __forceinline__ bool out_of_time(const Block& block, const Params& p, u32 kind, u32 task, u32 counter = 0, int have = 0, int need = 0) {
  if (block.aborted() != 0) return true;
  const bool mine = global_time_ns() > deadline_of(block);
  if (!mine && *reinterpret_cast<volatile u32*>(&p.abort_report->aborted) == 0) return false;
  if (mine) {
    volatile AbortReport& report = block.report();
    report.task = task;
    report.kind = kind;
    report.counter = counter;
    report.have = static_cast<u32>(have);
    report.need = static_cast<u32>(need);
    *reinterpret_cast<volatile u32*>(&p.abort_report->aborted) = 1;
  }
  block.aborted() = mine ? 2 : 1;
  return true;
}

// One thread, when its block stopped early: the first such block of the launch says why.
__device__ __forceinline__ void report_abort(const Block& block, const Params& p) {
  if (block.aborted() != 2 || atomicCAS(&p.abort_report->claimed, 0u, 1u) != 0) return;
  const volatile AbortReport& report = block.report();
  p.abort_report->sm = block.sm();
  p.abort_report->task = report.task;
  p.abort_report->kind = report.kind;
  p.abort_report->counter = report.counter;
  p.abort_report->have = report.have;
  p.abort_report->need = report.need;
}

// The producer's waits keep the time. False: this launch is over.
__device__ __forceinline__ bool wait_barrier_timed(const Block& block, const Params& p, u32 bar, u32 parity, u32 task) {
  for (u32 polls = 1; !mbarrier_test(bar, parity); ++polls) {
    if (polls % kPollsPerCheck == 0 && out_of_time(block, p, kAbortRing, task)) return false;
  }
  return true;
}

// The consumers' only look whether somebody else gave up: what they wait for comes from the producer, or from warps that wait for it or for a
// counter.
__device__ __forceinline__ bool wait_barrier(const Block& block, u32 bar, u32 parity) {  // false: somebody did
  while (!mbarrier_test(bar, parity)) {
    if (block.aborted() != 0) return false;
  }
  return true;
}

// Acquire: what the counter's signals released is visible behind it. Confirmed stores are in L2, where all that they are read from is read, when they
// are signalled; and packets need a hint only (docs/megakernel-vm.md): then a look at the counter is a plain trip, which drops nothing from L1.
template <bool Acquire>
__device__ __forceinline__ bool wait_counter(const Block& block, const Params& p, const WaitDesc& wait, u32 task) {  // false: the launch is over
  const int epoch = kPersistent ? static_cast<int>(step_word<kStepEpoch>()) : p.epoch;
  const int need = epoch * static_cast<int>(wait.fan_in) + static_cast<int>(wait.target);
  const int* counter = p.counters + wait.counter * kCounterStride;
  const auto look = [&] { return Acquire ? load_acquire(counter) : load_relaxed(counter); };
  int have = look();
  for (u32 polls = 1; have - need < 0; ++polls) {
    if (polls % kPollsPerCheck == 0 && out_of_time(block, p, kAbortCounter, task, wait.counter, have, need)) return false;
    have = look();
  }
  return true;
}

// Kinds of waiting for a task's input.
enum WaitKind { kWaitCounters, kWaitPackets };

// All consumer warps: returns when every wait of the task holds and what the waits order is visible to every consumer thread. Flagged: the counters
// say when to look, the tags what is there; a short vector's readers look at the packets at once.
// Whether the block leaves is said here, by one warp before a barrier: all warps do the same, or some would wait for others that are gone. A
// warp that notices an abort elsewhere goes on with whatever it has to the next task's wait.
// From the counter's last look to the loads behind the barrier lies nothing that can be done before: this way is gone five times a layer.
__device__ __forceinline__ bool wait_dependencies(const Block& block, const Params& p, const TaskDesc& task, u32 index,
                                                  WaitKind kind = kWaitCounters) {
  trace_mark(p, index, kMarkStart, threadIdx.x == 0);
  if (threadIdx.x < 32) {
    bool over = block.aborted() != 0;
    if (kind == kWaitCounters) {
      const WaitDesc* waits = block.waits() + task.wait_first;
      const u32 count = task.wait_count;
      for (u32 i = threadIdx.x; i < count; i += 32) over = !wait_counter < !kConfirmed && !kFlagged > (block, p, waits[i], index) || over;
    }
    if (over) block.leave() = 1;
    __syncwarp();
  }
  trace_mark(p, index, kMarkReady, threadIdx.x == 0);
  consumer_barrier();
  return block.leave() == 0;
}

// Until each of `Count` loads has what is wanted of it: `right(j)`, else `load(j)` anew.
template <int Count, class Load, class Right, class Wanted>
__device__ __forceinline__ void await_loads(const Block& block, const Params& p, u32 index, Load load, Right right, Wanted wanted) {
  for (u32 polls = 1;; ++polls) {
    bool late = false;
#pragma unroll
    for (int j = 0; j < Count; ++j) {
      if (wanted(j) && !right(j)) {
        load(j);
        late = true;
      }
    }
    if (!late || (polls % kPollsPerCheck == 0 && out_of_time(block, p, kAbortPackets, index))) return;
  }
}
// Packets on their way: `from(j)`: address of the j-th (Packets: of four words); `wanted(j)`: whether this thread has it.
template <int N, class Packet, class From, class Wanted>
__device__ __forceinline__ void ask_for_packets(Packet (&packets)[N], From from, Wanted wanted) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    packets[j].clear();
    if (wanted(j)) packets[j].load(from(j));
  }
}
// Until every wanted one carries the tag.
template <int N, class Packet, class From, class Wanted>
__device__ __forceinline__ void await_packets(const Block& block, const Params& p, u32 index, u32 tag, Packet (&packets)[N], From from,
                                              Wanted wanted) {
  await_loads<N>(
      block, p, index, [&](int j) { packets[j].load(from(j)); }, [&](int j) { return packets[j].right(tag); }, wanted);
}
// Both, where nothing lies between. All are on their way at once. One body: of the two in turn the assembler makes other code, which has not been
// timed.
template <int N, class Packet, class From, class Wanted>
__device__ __forceinline__ void load_packets(const Block& block, const Params& p, u32 index, u32 tag, Packet (&packets)[N], From from,
                                             Wanted wanted) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    packets[j].clear();
    if (wanted(j)) packets[j].load(from(j));
  }
  for (u32 polls = 1;; ++polls) {
    bool late = false;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (wanted(j) && !packets[j].right(tag)) {
        packets[j].load(from(j));
        late = true;
      }
    }
    if (!late || (polls % kPollsPerCheck == 0 && out_of_time(block, p, kAbortPackets, index))) return;
  }
}

}  // namespace amk_vm
