#include "core/target/cost_model.h"

#include <algorithm>

#include "core/target/machine_rates.h"
#include "core/target/timeline.h"

namespace amk {
namespace {

constexpr double kDescriptorBytes = 128;

double* region_of(Breakdown& breakdown, const Instruction& instruction) {
  switch (instruction.op) {
    case Opcode::Embed:
      return &breakdown.other;
    case Opcode::Rope:
    case Opcode::KvAppend:
    case Opcode::AttentionTile:
    case Opcode::AttentionCombine:
      return &breakdown.attention;
    case Opcode::SiluMul:
      return &breakdown.mlp;
    case Opcode::ArgmaxPartial:
    case Opcode::Argmax:
      return &breakdown.lm_head;
    default:
      break;
  }
  switch (instruction.matrix) {
    case Matrix::Qkv:
    case Matrix::O:
      return &breakdown.attention;
    case Matrix::GateUp:
    case Matrix::Down:
      return &breakdown.mlp;
    case Matrix::LmHead:
      return &breakdown.lm_head;
    case Matrix::None:
      break;
  }
  return nullptr;  // RmsNorm, Add: belong to their neighbour
}

// Attributes the time without hops to instructions by how far each moves the end of the step, in program order.
Breakdown attribute(const Program& program, const Timeline& streaming) {
  Breakdown breakdown;
  double reached = 0;
  double carried = 0;  // of norms, until the instruction that they serve
  double* last = &breakdown.other;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const double step = std::max(0.0, streaming.instruction_end_us[i] - reached);
    reached += step;
    const Instruction& instruction = program.instructions[i];
    double* region = region_of(breakdown, instruction);
    if (region == nullptr && instruction.op == Opcode::Add) region = last;
    if (region == nullptr) {
      carried += step;
      continue;
    }
    *region += step + carried;
    carried = 0;
    last = region;
  }
  *last += carried;
  return breakdown;
}

// Share of a cyclic stream of `bytes` that an L2 of `l2` bytes keeps from step to step: all while it fits with room for activations, none
// once the stream is twice the cache (a cyclic stream evicts itself), in between linear.
double l2_share(double bytes, double l2) { return std::clamp(1.0 - (bytes / l2 - 0.8) / 1.2, 0.0, 1.0); }

int kv_element_bytes(const Program& program) {
  for (const Buffer& buffer : program.buffers)
    if (buffer.space == Space::Kv) return dtype_bytes(buffer.dtype);
  return 2;
}

}  // namespace

double kv_from_hbm(const Program& program, const GpuTarget& target, int entries, double cached) {
  const ModelSpec& spec = program.model;
  const int seen = spec.sliding_window ? std::min(entries, *spec.sliding_window) : entries;
  const double bytes = 2.0 * spec.layers * spec.kv_rows() * seen * kv_element_bytes(program) * program.batch;
  return (1.0 - cached) * (1.0 - l2_share(bytes, static_cast<double>(target.l2_bytes)));
}

static Prediction predicted(const Program& program, const ScheduleConfig& config, const GpuTarget& target, int entries, const Roofline& roofline,
                            double cached) {
  const MachineRates rates = machine_rates(config, target, cached);
  const double kv = kv_from_hbm(program, target, entries, cached);
  const Timeline full = simulate(program, rates, entries - 1, kv, true);
  const Timeline streaming = simulate(program, rates, entries - 1, kv, false);

  // Traffic beside weights and KV: activation pages are written each step and leave L2 in the end (storage that is not reused costs its
  // write-back), and every task's descriptor is read once.
  double other_bytes = kDescriptorBytes * static_cast<double>(program.tasks.size());
  for (const Storage& storage : program.storages)
    if (storage.space == Space::Activation) other_bytes += static_cast<double>(storage.bytes);
  const double other_us = other_bytes / rates.total_bytes_per_us;

  Prediction prediction;
  prediction.bound_us = roofline.bound_us;
  prediction.hbm_bytes = roofline.hbm_bytes;
  prediction.latency_us = std::max(roofline.bound_us, full.end_us + rates.launch_us + other_us);
  prediction.regions = attribute(program, streaming);
  Breakdown& regions = prediction.regions;
  regions.other += rates.launch_us + other_us;
  regions.sync = prediction.latency_us - (regions.attention + regions.mlp + regions.lm_head + regions.other);
  if (regions.sync < 0) {  // the model's two runs may order ties differently: never report negative time
    regions.other = std::max(0.0, regions.other + regions.sync);
    regions.sync = 0;
  }
  return prediction;
}

Prediction predict(const Program& program, const ScheduleConfig& config, const GpuTarget& target, int position) {
  const int entries = std::clamp(position, 1, std::max(1, program.max_seq));
  const Roofline roofline = decode_roofline(program.model, target, entries, kv_element_bytes(program), program.batch);
  const double cached =
      l2_share(static_cast<double>(roofline.hbm_bytes == 0 ? 0 : roofline.hbm_bytes + target.l2_bytes), static_cast<double>(target.l2_bytes));
  return predicted(program, config, target, entries, roofline, cached);
}

Prediction predict_part(const Program& program, const ScheduleConfig& config, const GpuTarget& target, int position, const Roofline& floor) {
  return predicted(program, config, target, std::clamp(position, 1, std::max(1, program.max_seq)), floor, 0.0);
}

}  // namespace amk
