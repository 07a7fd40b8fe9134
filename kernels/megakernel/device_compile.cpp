#include "kernels/megakernel/device_compile.h"

#include <algorithm>

#include "core/base/number_text.h"
#include "core/schedule/rules.h"
#include "embedded/megakernel_sources.h"

namespace amk {
namespace {

// Registers of 384 threads, 168 each, when the producer's four warps keep 40, or 56 where two of them finish rows (device/memory.cuh): for each
// consumer thread.
constexpr int kConsumerRegisters = 232, kFinisherRegisters = 224;

int type_number(DType t) { return t == DType::F32 ? 0 : t == DType::F16 ? 1 : 2; }

// Of one sequence. One sequence alone needs no such number: its kernel is the same for every placement.
std::int64_t argmax_partials(const Program& program) {
  if (program.batch == 1) return 0;
  const BufferId id = program.find_buffer("argmax_partials");
  return id == kNone ? 0 : program.buffers[static_cast<std::size_t>(id)].bytes / program.batch / (kArgmaxWords * dtype_bytes(DType::I32));
}

}  // namespace

CompileRequest compile_request(const PlanInput& in, const DeviceShapes& s, std::int64_t kv_now) {
  const Program& program = in.program;
  const ModelSpec& spec = in.spec();
  const ScheduleConfig& config = in.config;
  const GpuLayout layout(spec, config.kernel.weight_layout);
  CompileRequest r;
  r.name = "vm.cu";
  r.architecture = in.limits.architecture;
  for (const auto& [path, text] : megakernel_sources()) {
    const std::string name = path.substr(path.rfind('/') + 1);
    if (name == "vm.cu")
      r.source = text;
    else
      r.headers.emplace_back(name, text);
  }
  r.options = {"-std=c++17", "-default-device", "--ptxas-options=-v"};
  const auto define = [&](const char* name, std::int64_t value) { r.options.push_back("-DAMK_" + std::string(name) + "=" + std::to_string(value)); };
  define("WEIGHT_TYPE", type_number(s.format.weights));
  define("INT8", s.int8 ? 1 : 0);
  define("LIMBS_AT", s.limbs_at);
  define("SCALES", std::max<std::int64_t>(0, layout.scale_offset(Matrix::Qkv, 0)));
  define("SCALES_LM_HEAD", std::max<std::int64_t>(0, layout.scale_offset(Matrix::LmHead, 0)));
  define("ACT_TYPE", type_number(s.format.activations));
  define("KV_TYPE", type_number(s.format.kv));
  define("HIDDEN", spec.hidden);
  define("INTER", spec.intermediate);
  define("HEADS", spec.heads);
  define("KV_HEADS", spec.kv_heads);
  define("HEAD_DIM", spec.head_dim);
  define("VOCAB", spec.vocab);
  define("MAX_SEQ", program.max_seq);
  define("SLIDING_WINDOW", spec.sliding_window.value_or(0));
  define("QK_NORM", spec.qk_norm ? 1 : 0);
  r.options.push_back("-DAMK_RMS_EPS=" + scientific(spec.rms_eps, 9) + "f");
  define("CONSUMER_WARPS", s.consumer_warps);
  define("RING_SLOTS", s.slots);
  define("SLOT_BYTES", s.slot_bytes);
  define("WINDOW", s.window);
  define("DEPTH", program.ring.depth);
  define("BOOST", s.boost);
  define("KV_BLOCK", program.attention.kv_block);
  define("SPLITS", program.attention.splits);
  define("SPLIT_STEP", program.attention.split_step);
  define("ATTENTION_MMA", matrix_attention(spec) ? 1 : 0);
  define("CACHE_GROUP", s.cache_group);
  // Up to a tile a warp, the warps' own loads come as early.
  define("CACHE_RING_FROM", s.cache_group == 0               ? 0
                            : in.options.cache_ring_from > 0 ? in.options.cache_ring_from
                                                             : (s.consumer_warps + 1) * amk_vm::kTile);
  define("BATCH", program.batch);
  define("PERSISTENT", s.persistent ? 1 : 0);
  define("LAYERS", spec.layers);
  define("ARGMAX_PARTIALS", argmax_partials(program));
  define("ACT_STRIDE", s.act_stride);
  define("WIDE_SLOTS", s.wide_slots);
  define("WIDE_STRIDE", s.wide_stride);
  define("DOWN_SEGS", s.down_segs);
  define("O_SEGS", s.o_segs);
  define("MERGES_IN_O", config.fusion.combine_o && program.attention.splits > 1 ? 1 : 0);
  define("CONSUMER_REGISTERS", s.finishers ? kFinisherRegisters : s.direct() ? kConsumerRegisters : 0);
  define("FINISHERS", s.finishers ? 1 : 0);
  define("NORM_DIRECT", s.norm_direct ? 1 : 0);
  define("MMA", config.kernel.gemv_path != GemvPath::Fma ? 1 : 0);
  define("SLICES", s.slices ? 1 : 0);
  define("ATTENTION_O", attention_in_o(config.fusion) ? 1 : 0);
  define("STAGED_ROWS", s.staged_rows);
  define("HEAD_UNITS", s.head_units);
  define("PACKED", s.packed ? 1 : 0);
  define("PUBLISH", config.kernel.publish == Publish::Confirmed ? 1 : config.kernel.publish == Publish::Flagged ? 2 : 0);
  define("KV_NOW", kv_now);
  define("HOIST", s.hoist && s.packed ? 1 : 0);
  define("BULK", s.bulk ? 1 : 0);
  define("SLOT_ARRIVALS", s.slot_arrivals);
  define("PARTIAL_FLOATS", s.partial_floats);
  define("ACT_BYTES", s.act_bytes);
  // A second set of sums and vectors needs the registers of half a group; two halves in turn make the same sums in the same order.
  define("GROUP_BLOCKS", program.batch > kSequencesAtOnce && s.group == 4 ? 2 : s.group);
  define("SEG_HIDDEN", s.hidden.seg);
  define("SEG_Q", s.q.seg);
  define("SEG_INTER", s.inter.seg);
  define("FULL_BARRIERS", in.options.full_barriers ? 1 : 0);
  if (in.options.full_barriers) r.options.emplace_back("-lineinfo");  // racecheck then names lines
  define("TRACE", in.options.trace ? 1 : 0);
  define("TRACE_TASKS", in.options.trace ? s.longest_queue : 1);
  return r;
}

}  // namespace amk
