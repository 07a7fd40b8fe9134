#include "core/schedule/rules.h"

#include "core/model/model_spec.h"

namespace amk {
namespace {

constexpr std::string_view kRingPaths[] = {"smem_bytes_per_block", "kernel_knobs.chunk_bytes"};
constexpr std::string_view kWindowPaths[] = {"smem_bytes_per_block", "kernel_knobs.chunk_bytes", "kernel_knobs.inflight_chunks"};
constexpr std::string_view kKvRingPaths[] = {"smem_bytes_per_block", "kernel_knobs.kv_path"};
constexpr std::string_view kMmaPaths[] = {"kernel_knobs.gemv_path", "kernel_knobs.weight_layout"};
constexpr std::string_view kSlicesPaths[] = {"kernel_knobs.gemv_path", "kernel_knobs.publish", "kernel_knobs.weight_layout", "kernel_knobs.kv_path",
                                             "kernel_knobs.tokens_per_launch"};
constexpr std::string_view kAttentionOPaths[] = {"fusion_grouping[attention+combine]", "fusion_grouping[combine+o_proj]",
                                                 "fusion_grouping[o_proj+add]",        "fusion_grouping[norm+gate_up]",
                                                 "fusion_grouping[down+add]",          "kernel_knobs.gemv_path"};

constexpr ConfigRule kRules[] = {
    {"ring-holds-two-chunks", "the ring must hold at least two chunks, one landing while the other is consumed; or be 0 (direct loads)", kRingPaths,
     [](const ScheduleConfig& c) { return c.smem_bytes_per_block == 0 || c.smem_bytes_per_block / c.kernel.chunk_bytes >= 2; }},
    {"window-fits-ring", "the copies in flight (inflight_chunks * chunk_bytes) must fit the ring, or the window could never fill", kWindowPaths,
     [](const ScheduleConfig& c) {
       return c.smem_bytes_per_block == 0 || c.smem_bytes_per_block / c.kernel.chunk_bytes >= c.kernel.inflight_chunks;
     }},
    {"kv-ring-needs-ring", "the cache comes through the ring (kv_path ring) only where there is one: smem_bytes_per_block above 0", kKvRingPaths,
     [](const ScheduleConfig& c) { return c.smem_bytes_per_block > 0 || c.kernel.kv_path != KvPath::Ring; }},
    {"mma-needs-packed", "matrix instructions read weights in fragment order: gemv_path mma needs weight_layout packed", kMmaPaths,
     [](const ScheduleConfig& c) { return c.kernel.gemv_path != GemvPath::Mma || c.kernel.weight_layout == WeightLayout::Packed; }},
    {"slices-needs-flagged",
     "gemv_path slices looks for its own packets and takes whole 8-row units: it needs publish flagged, weight_layout packed, kv_path direct and "
     "tokens_per_launch 1",
     kSlicesPaths,
     [](const ScheduleConfig& c) {
       return c.kernel.gemv_path != GemvPath::Slices || (c.kernel.publish == Publish::Flagged && c.kernel.weight_layout == WeightLayout::Packed &&
                                                         c.kernel.kv_path == KvPath::Direct && c.kernel.tokens_per_launch == 1);
     }},
    {"attention-o-needs-slices",
     "attention and o_proj in one group leave a sum a KV head, which gemv_path slices alone makes and adds up, in o_proj+add, norm+gate_up and "
     "down+add",
     kAttentionOPaths,
     [](const ScheduleConfig& c) {
       return !attention_in_o(c.fusion) || (c.kernel.gemv_path == GemvPath::Slices && c.fusion.o_add && c.fusion.norm_gate_up && c.fusion.down_add);
     }},
};

}  // namespace

std::span<const ConfigRule> config_rules() { return kRules; }

const ConfigRule* violated_rule(const ScheduleConfig& config) {
  for (const ConfigRule& rule : kRules)
    if (!rule.holds(config)) return &rule;
  return nullptr;
}

bool matrix_attention(const ModelSpec& spec) {
  return spec.dtype == DType::BF16 && spec.head_dim % 32 == 0 && spec.head_dim <= 128 && spec.gqa() <= 8;
}

}  // namespace amk
