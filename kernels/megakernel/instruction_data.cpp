#include "kernels/megakernel/instruction_data.h"

#include <algorithm>
#include <cmath>

#include "core/base/hash.h"
#include "core/base/random.h"
#include "core/program/lower_instruction.h"
#include "core/reference/reference_vm_memory.h"

namespace amk {
namespace {

constexpr double kReferenceWork = 6e9;  // multiply-adds of all draws of one reference

void add(std::vector<Slice>& out, const Program& program, BufferId id, int first_row, int rows) {
  const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
  Slice slice{id, buffer.name, -1, false, false, 0, buffer.bytes / dtype_bytes(buffer.dtype)};
  const bool keys = buffer.name.rfind("kv.k.", 0) == 0;
  if (!keys && buffer.name.rfind("kv.v.", 0) != 0) {
    out.push_back(slice);
    return;
  }
  slice.cache = true;
  slice.values = !keys;
  slice.layer = std::atoi(buffer.name.c_str() + 5);
  for (int head = 0; head < program.model.kv_heads; ++head) {
    slice.first = (std::int64_t{head} * program.max_seq + first_row) * program.model.head_dim;
    slice.count = std::int64_t{rows} * program.model.head_dim;
    out.push_back(slice);
  }
}

}  // namespace

std::vector<InstructionDraw> instruction_draws(const ModelSpec& spec, std::string_view op, int max_seq, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<int> positions;
  if (op == "attention") {
    positions = {0, 5, 63, 64, 127, 128, 255, 300 + static_cast<int>(rng.below(200))};
  } else {
    positions = {0, 1 + static_cast<int>(rng.below(500)), 1 + static_cast<int>(rng.below(500))};
    const double runs = std::clamp(kReferenceWork / static_cast<double>(spec.parameters()), 1.0, 4.0);
    positions.resize(static_cast<std::size_t>(runs) - 1);
  }
  positions.push_back(kInstructionPosition);
  for (int& p : positions) p = std::min(p, max_seq - 1);
  std::vector<InstructionDraw> out;
  for (const int p : positions) out.push_back({p, rng.next()});
  return out;
}

std::vector<Slice> input_slices(const Program& program, int position) {
  std::vector<Slice> out;
  for (std::size_t b = 0; b < program.buffers.size(); ++b)
    if (program.buffers[b].space == Space::Input) add(out, program, static_cast<BufferId>(b), 0, position + 1);
  return out;
}

std::vector<Slice> output_slices(const Program& program, int position) {
  std::vector<char> read(program.buffers.size(), 0), written(program.buffers.size(), 0);
  for (const Task& task : program.tasks) {
    for (const Region& r : task.reads) read[static_cast<std::size_t>(r.buffer)] = 1;
    for (const Region& r : task.writes) written[static_cast<std::size_t>(r.buffer)] = 1;
  }
  std::vector<BufferId> kept;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    // Partials of the argmax depend on the tiling: whoever reads them holds them against the logits.
    const bool result = buffer.space == Space::Output || buffer.space == Space::Kv || read[b] == 0;
    if (written[b] != 0 && result && buffer.dtype != DType::I32) kept.push_back(static_cast<BufferId>(b));
  }
  std::sort(kept.begin(), kept.end(), [&](BufferId a, BufferId b) {
    return program.buffers[static_cast<std::size_t>(a)].name < program.buffers[static_cast<std::size_t>(b)].name;
  });
  std::vector<Slice> out;
  for (const BufferId id : kept) add(out, program, id, position, 1);
  return out;
}

std::vector<float> input_values(const Program& program, const Slice& slice, const InstructionDraw& draw, const NumericFormat& gpu) {
  // The place of a cache row in its buffer depends on max_seq: its head does not.
  const std::int64_t head = slice.cache ? slice.first / (std::int64_t{program.max_seq} * program.model.head_dim) : 0;
  Rng rng(draw.seed ^ mix64(hash64(slice.name) + static_cast<std::uint64_t>(head)));
  const bool residual = slice.name.front() == 'x';  // "x3": fp32 on every machine; everything else as activations or cache are stored
  const DType stored = residual ? DType::F32 : slice.cache ? gpu.kv : gpu.activations;
  const std::uint64_t kind = draw.seed % 3;
  std::vector<float> out(static_cast<std::size_t>(slice.count));
  for (float& v : out) {
    const double u = 2 * rng.uniform() - 1;
    double value = 1.7 * u;                                       // even
    if (kind == 1) value = 2.6 * u * u * u;                       // heavy-tailed
    if (kind == 2) value = rng.below(16) == 0 ? 6 * u : 0.7 * u;  // sparse and large
    v = vm::round_to(stored, static_cast<float>(value));
  }
  return out;
}

}  // namespace amk
