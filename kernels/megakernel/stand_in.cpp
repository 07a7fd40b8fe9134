#include "kernels/megakernel/stand_in.h"

#include <algorithm>

namespace amk {
namespace {

constexpr int kLayers = 2;
constexpr int kKvHeads = 2;
constexpr int kHidden = 64;
constexpr int kIntermediate = 192;
constexpr int kVocab = 512;
constexpr int kMaxSeq = 1024;
constexpr int kFewestSms = 8;

ModelSpec narrowed(const ModelSpec& spec) {
  ModelSpec small = spec;
  small.name = spec.name + " (stand-in)";
  small.layers = std::min(spec.layers, kLayers);
  small.kv_heads = std::min(spec.kv_heads, kKvHeads);
  small.heads = small.kv_heads * spec.gqa();
  small.hidden = std::min(spec.hidden, kHidden);
  small.intermediate = std::min(spec.intermediate, kIntermediate);
  small.vocab = std::min(spec.vocab, kVocab);
  // The window must fall inside what is executed, or it would not be checked.
  if (small.sliding_window) small.sliding_window = std::min(*small.sliding_window, 48);
  return small;
}

}  // namespace

Executed executed_on_cpu(const ModelRef& model, const LoweringTarget& target) {
  Executed executed{model, target, model.spec.parameters() > kExecutedParametersLimit};
  if (!executed.stand_in) return executed;
  executed.model.source = ModelRef::Source::Catalogue;  // the checkpoint's weights have other shapes
  executed.model.spec = narrowed(model.spec);
  executed.model.seed = 1;
  executed.target.max_seq = std::min(target.max_seq, kMaxSeq);
  const int proportional = static_cast<int>(std::int64_t{target.sm_count} * executed.model.spec.hidden / model.spec.hidden);
  executed.target.sm_count = std::min(target.sm_count, std::max(kFewestSms, proportional));
  if (!target.sm_weight.empty()) executed.target.sm_weight.resize(static_cast<std::size_t>(executed.target.sm_count));
  return executed;
}

ScheduleConfig config_for(const Executed& executed, const ScheduleConfig& config) {
  ScheduleConfig out = config;
  if (executed.stand_in && config.sm_assignment == SmAssignment::Explicit) {
    out.sm_assignment = SmAssignment::RoundRobin;
    out.explicit_sm.clear();
  }
  return out;
}

}  // namespace amk
