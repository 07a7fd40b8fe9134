#include "kernels/megakernel/gpu_instruction.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/hash.h"
#include "core/reference/reference_vm_memory.h"

namespace amk {
namespace {

Result<std::vector<std::byte>> read_slice(GpuModel& model, DeviceProgram& program, const Slice& slice) {
  const Buffer& buffer = program.program().buffers[static_cast<std::size_t>(slice.buffer)];
  if (slice.cache) return model.sequence().read_cache(slice.layer, slice.values, slice.first, slice.count, model.stream());
  if (buffer.space != Space::Output) return program.read_activation(slice.buffer, model.stream());
  AMK_TRY(logits, model.sequence().read_logits(model.stream()));
  std::vector<std::byte> out(logits.size() * sizeof(float));
  std::memcpy(out.data(), logits.data(), out.size());
  return out;
}

std::vector<std::byte> stored(const Program& program, const Slice& slice, const InstructionDraw& draw, const NumericFormat& format) {
  const Buffer& buffer = program.buffers[static_cast<std::size_t>(slice.buffer)];
  std::vector<std::byte> out(static_cast<std::size_t>(slice.count * dtype_bytes(buffer.dtype)));
  vm::store_f32(out.data(), buffer.dtype, input_values(program, slice, draw, format));
  return out;
}

// Elements that still hold the poison of poison_activations and poison_outputs, whose words span two 2-byte elements.
std::int64_t poisoned(std::span<const std::byte> bytes) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data() + i, 4);
    count += word == kPoisonWord ? 1 : 0;
  }
  return count;
}

// The largest over all partials must be the largest logit, and its lowest index.
Result<bool> partials_agree(GpuModel& model, DeviceProgram& program, std::span<const float> logits) {
  const BufferId id = program.program().find_buffer("argmax_partials");
  if (id == kNone) return true;
  AMK_TRY(bytes, program.read_activation(id, model.stream()));
  std::int32_t index = -1;
  float best = 0;
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    float value = 0;
    std::int32_t where = 0;
    std::memcpy(&value, bytes.data() + at, 4);
    std::memcpy(&where, bytes.data() + at + 4, 4);
    if (index < 0 || value > best || (value == best && where < index)) {
      best = value;
      index = where;
    }
  }
  std::size_t largest = 0;
  for (std::size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[largest]) largest = i;
  return index == static_cast<std::int32_t>(largest) && std::bit_cast<std::uint32_t>(best) == std::bit_cast<std::uint32_t>(logits[largest]);
}

}  // namespace

Status give_inputs(GpuModel& model, DeviceProgram& program, const InstructionDraw& draw) {
  const DeviceSequence& sequence = model.sequence();
  AMK_CHECK(sequence.poison_outputs(model.stream()));
  AMK_CHECK(sequence.poison_kv(model.stream()));
  AMK_CHECK(program.poison_activations(model.stream()));
  for (const Slice& slice : input_slices(program.program(), draw.position)) {
    const auto bytes = stored(program.program(), slice, draw, program.plan().format);
    AMK_CHECK(slice.cache ? sequence.write_cache(slice.layer, slice.values, slice.first, bytes, model.stream())
                          : program.write_activation(slice.buffer, bytes, model.stream()));
  }
  return {};
}

Result<InstructionRun> read_outputs(GpuModel& model, DeviceProgram& program, const InstructionDraw& draw) {
  InstructionRun run;
  std::string bits;
  for (const Slice& slice : output_slices(program.program(), draw.position)) {
    AMK_TRY(bytes, read_slice(model, program, slice));
    bits.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    run.unwritten += slice.cache ? 0 : poisoned(bytes);  // a cache's poison is no number: it is counted there
    std::vector<float> scratch;
    const auto values = vm::load_f32(bytes.data(), program.program().buffers[static_cast<std::size_t>(slice.buffer)].dtype, slice.count, scratch);
    for (const float v : values) run.not_finite += std::isfinite(v) ? 0 : 1;
    if (slice.name == "logits") {
      AMK_TRY(agree, partials_agree(model, program, values));
      run.partials_agree = agree;
    }
    run.outputs.insert(run.outputs.end(), values.begin(), values.end());
  }
  run.hash = hash64(bits);
  for (const Slice& slice : input_slices(program.program(), draw.position)) {
    AMK_TRY(bytes, read_slice(model, program, slice));
    run.inputs_unchanged = run.inputs_unchanged && bytes == stored(program.program(), slice, draw, program.plan().format);
  }
  return run;
}

Result<InstructionRun> run_instruction(GpuModel& model, DeviceProgram& program, const InstructionDraw& draw) {
  AMK_CHECK(give_inputs(model, program, draw));
  AMK_CHECK(model.run(program, {draw.position, false}));
  return read_outputs(model, program, draw);
}

}  // namespace amk
