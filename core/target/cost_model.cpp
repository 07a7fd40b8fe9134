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
    case Opcode::AttentionO:
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

double kv_from_hbm(const ModelSpec& spec, const Program& program, const GpuTarget& target, int entries, double cached) {
  const int seen = spec.sliding_window ? std::min(entries, *spec.sliding_window) : entries;
  const double bytes = 2.0 * spec.layers * spec.kv_rows() * seen * kv_element_bytes(program) * program.batch;
  return (1.0 - cached) * std::clamp((bytes / static_cast<double>(target.l2_bytes) - 0.2) / 0.4, 0.0, 1.0);
}

// A step of `spec` that `program` makes, or begins to make: the floor, and what the timeline needs to know of the whole model.
struct Step {
  Step(const Program& program, const ModelSpec& spec, const ScheduleConfig& config, const GpuTarget& target, int entries, const Roofline& floor,
       double cached)
      : roofline(floor),
        rates(machine_rates(config, target, cached)),
        position(entries - 1),
        kv(kv_from_hbm(spec, program, target, entries, cached)) {}

  Roofline roofline;
  MachineRates rates;
  int position;
  double kv;
};

Step whole_step(const Program& program, const ModelSpec& spec, const ScheduleConfig& config, const GpuTarget& target, int position) {
  const int entries = std::clamp(position, 1, std::max(1, program.max_seq));
  const Roofline roofline = decode_roofline(spec, target, entries, kv_element_bytes(program), program.batch);
  const auto l2 = static_cast<double>(target.l2_bytes);
  const double cached = l2_share(roofline.hbm_bytes == 0 ? 0.0 : static_cast<double>(roofline.hbm_bytes) + l2, l2);
  return {program, spec, config, target, entries, roofline, cached};
}

// Traffic beside weights and KV: activation pages are written each step and leave L2 in the end (storage that is not reused costs its
// write-back), and every task's descriptor is read once.
double other_us(const Program& program, const MachineRates& rates, double tasks, double pages) {
  double bytes = 0;
  for (const Storage& storage : program.storages)
    if (storage.space == Space::Activation) bytes += static_cast<double>(storage.bytes);
  return (bytes * pages + kDescriptorBytes * tasks) / rates.total_bytes_per_us;
}

double latency_us(const Step& step, double end_us, double other) { return std::max(step.roofline.bound_us, end_us + step.rates.launch_us + other); }

Prediction predicted(const Program& program, const Step& step) {
  const Timeline full = simulate(program, step.rates, step.position, step.kv, true);
  const Timeline streaming = simulate(program, step.rates, step.position, step.kv, false);
  const double other = other_us(program, step.rates, static_cast<double>(program.tasks.size()), 1);

  Prediction prediction;
  prediction.bound_us = step.roofline.bound_us;
  prediction.hbm_bytes = step.roofline.hbm_bytes;
  prediction.latency_us = latency_us(step, full.end_us, other);
  prediction.regions = attribute(program, streaming);
  Breakdown& regions = prediction.regions;
  regions.other += step.rates.launch_us + other;
  regions.sync = prediction.latency_us - (regions.attention + regions.mlp + regions.lm_head + regions.other);
  if (regions.sync < 0) {  // the model's two runs may order ties differently: never report negative time
    regions.other = std::max(0.0, regions.other + regions.sync);
    regions.sync = 0;
  }
  return prediction;
}

}  // namespace

double kv_from_hbm(const Program& program, const GpuTarget& target, int entries, double cached) {
  return kv_from_hbm(program.model, program, target, entries, cached);
}

Prediction predict(const Program& program, const ScheduleConfig& config, const GpuTarget& target, int position) {
  return predicted(program, whole_step(program, program.model, config, target, position));
}

double predict_us(const Program& program, const ScheduleConfig& config, const GpuTarget& target, int position) {
  return predict_deeper_us(program, program.model.layers, config, target, position);
}

double predict_deeper_us(const Program& program, int layers, const ScheduleConfig& config, const GpuTarget& target, int position) {
  ModelSpec spec = program.model;
  const int made = spec.layers, more = layers - made;
  spec.layers = layers;
  const Step step = whole_step(program, spec, config, target, position);
  const Timeline full = simulate(program, step.rates, step.position, step.kv, true);
  double end_us = full.end_us;
  double tasks = static_cast<double>(program.tasks.size()), pages = 1;
  if (more > 0) {
    double from = 0, to = 0;  // ends of the second layer and of the last one: what placement leaves over is levelled within a few layers
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      if (program.instructions[i].layer == 1) from = std::max(from, full.instruction_end_us[i]);
      if (program.instructions[i].layer == made - 1) to = std::max(to, full.instruction_end_us[i]);
    }
    end_us += more * (to - from) / (made - 2);
    tasks +=
        more * static_cast<double>(std::count_if(program.tasks.begin(), program.tasks.end(), [&](const Task& t) { return t.layer == made - 1; }));
    if (config.page_allocation == PageAllocation::None) pages = static_cast<double>(layers) / made;
  }
  return latency_us(step, end_us, other_us(program, step.rates, tasks, pages));
}

Prediction predict_part(const Program& program, const ScheduleConfig& config, const GpuTarget& target, int position, const Roofline& floor) {
  return predicted(program, {program, program.model, config, target, std::clamp(position, 1, std::max(1, program.max_seq)), floor, 0.0});
}

}  // namespace amk
