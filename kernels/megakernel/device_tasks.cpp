#include "kernels/megakernel/device_tasks.h"

#include "core/program/packing.h"

namespace amk {
namespace {

// The device numbers opcodes, matrices and flags as the IR does (device/base.cuh).
static_assert(static_cast<int>(Opcode::Gemv) == 2 && static_cast<int>(Opcode::AttentionTile) == 5 && static_cast<int>(Opcode::Argmax) == 10 &&
              static_cast<int>(Opcode::AttentionO) == 11);
static_assert(static_cast<int>(Matrix::Qkv) == 1 && static_cast<int>(Matrix::Down) == 4 && static_cast<int>(Matrix::LmHead) == 5);
static_assert(kFusedNorm == 1 && kFusedRopeAppend == 2 && kFusedSiluMul == 4 && kFusedResidualAdd == 8 && kFusedArgmax == 16 && kFusedCombine == 32);
static_assert(kPartialTail == 4 && kArgmaxWords == 2);

class Filler {
 public:
  Filler(const Program& program, const Task& task, const GpuLayout& layout, const std::function<std::int64_t(BufferId)>& offset_of,
         const std::vector<InstructionId>& producers, std::int64_t word_bytes)
      : program_(program), task_(task), layout_(layout), offset_of_(offset_of), producers_(producers), word_bytes_(word_bytes) {}

  Result<amk_vm::TaskDesc> fill() {
    amk_vm::TaskDesc d{};
    d.op = static_cast<std::uint8_t>(task_.op);
    const bool alone = task_.op == Opcode::AttentionTile || task_.op == Opcode::Argmax;
    d.matrix = static_cast<std::uint8_t>(alone ? task_.seq : static_cast<int>(task_.matrix));
    d.fused = static_cast<std::uint16_t>(task_.fused);
    d.row_begin = static_cast<std::uint32_t>(task_.row_begin);
    d.row_end = static_cast<std::uint32_t>(task_.row_end);
    d.input = d.norm = d.bias = d.residual = d.output = d.output2 = amk_vm::kNoOffset;
    d.signal = task_.signal == kNone ? amk_vm::kNoOffset : static_cast<std::uint32_t>(task_.signal);
    d.pos_lo = task_.pos_lo;
    d.tag = static_cast<std::uint16_t>(task_.instruction + 1);
    d.layer = static_cast<std::uint16_t>(task_.layer < 0 ? 0 : task_.layer);
    d.head = static_cast<std::uint16_t>(task_.head);
    d.split = static_cast<std::uint16_t>(task_.split);
    switch (task_.op) {
      case Opcode::Embed:
        d.output = activation(task_.writes, 0);
        break;
      case Opcode::RmsNorm:
        d.input = activation(task_.reads, 0);
        d.norm = vector(layout_.norm_offset(bound_kind(), d.layer));
        d.output = activation(task_.writes, 0);
        break;
      case Opcode::Gemv:
        gemv(d);
        break;
      case Opcode::Rope:
        d.input = activation(task_.reads, 0);
        if (program_.model.qk_norm) d.norm = vector(layout_.norm_offset(WeightKind::QNorm, d.layer));
        // q slices first; a task of k heads alone writes only k.
        if (task_.row_begin < program_.model.heads) d.output = activation(task_.writes, 0);
        if (task_.row_end > program_.model.heads) d.output2 = activation(task_.writes, task_.writes.size() - 1);
        break;
      case Opcode::KvAppend:
        d.input = activation(task_.reads, 0);
        d.output2 = activation(task_.reads, 1);
        break;
      case Opcode::AttentionTile:
      case Opcode::AttentionCombine:
      case Opcode::SiluMul:
        d.input = activation(task_.reads, 0);
        d.output = activation(task_.writes, 0);
        break;
      case Opcode::Add:
        d.residual = activation(task_.reads, 0);
        d.input = activation(task_.reads, 1);
        d.output = activation(task_.writes, 0);
        break;
      case Opcode::ArgmaxPartial:
        d.output2 = argmax_partial();
        break;
      case Opcode::Argmax:
        d.input = activation(task_.reads, 0);
        break;
      case Opcode::AttentionO:
        attention_o(d);
        break;
    }
    if (task_.op != Opcode::Embed) d.input_tag = tag_of(task_.reads[0]);
    if (overflow_)
      return fail(ErrorKind::Rejected, "activations or weights exceed what a task descriptor can address",
                  {{"rule", "offset-range"}, {"message", "offset exceeds 32 bits"}, {"witness", Json::object()}});
    return d;
  }

 private:
  void gemv(amk_vm::TaskDesc& d) {
    const std::int64_t row_bytes = layout_.row_bytes(task_.matrix);
    const std::int64_t weight = layout_.matrix_offset(task_.matrix, d.layer) + task_.row_begin * row_bytes;  // a task starts with a unit
    d.weight = narrow(weight / 16);
    d.input = activation(task_.reads, 0);
    if ((task_.fused & kFusedNorm) != 0) {
      d.norm = vector(layout_.norm_offset(task_.matrix == Matrix::LmHead   ? WeightKind::FinalNorm
                                          : task_.matrix == Matrix::GateUp ? WeightKind::MlpNorm
                                                                           : WeightKind::AttnNorm,
                                          d.layer));
    }
    if (const std::int64_t bias = layout_.bias_offset(task_.matrix, d.layer); bias != GpuLayout::kNoVector) d.bias = vector(bias);
    if ((task_.fused & kFusedResidualAdd) != 0) {
      d.residual = activation(task_.reads, task_.reads.size() - 1);
      d.residual_tag = tag_of(task_.reads.back());
    }
    for (const Region& r : task_.writes) {  // a fused Qkv task of k or v rows alone writes no activation
      if (buffer(r).space != Space::Activation) continue;
      d.output = narrow(offset_of_(r.buffer));
      break;
    }
    if ((task_.fused & kFusedArgmax) != 0) d.output2 = argmax_partial();
    if ((task_.fused & kFusedRopeAppend) != 0 && program_.model.qk_norm) d.output2 = vector(layout_.norm_offset(WeightKind::QNorm, d.layer));
  }

  // From the head's first column on: whole blocks of 64, which the rules see to.
  void attention_o(amk_vm::TaskDesc& d) {
    const std::int64_t unit = layout_.row_bytes(Matrix::O) * kRowUnit, group = std::int64_t{program_.model.gqa()} * program_.model.head_dim;
    d.weight = narrow((layout_.matrix_offset(Matrix::O, d.layer) + task_.row_begin / kRowUnit * unit +
                       task_.head * group / kBlockColumns * kBlockColumns * kRowUnit * dtype_bytes(program_.model.matrix_dtype())) /
                      16);
    d.input = activation(task_.reads, 0);
    d.output = activation(task_.writes, 0);
    if (task_.head != 0) return;
    if (const std::int64_t bias = layout_.bias_offset(Matrix::O, d.layer); bias != GpuLayout::kNoVector) d.bias = vector(bias);
    d.residual = activation(task_.reads, task_.reads.size() - 1);
    d.residual_tag = tag_of(task_.reads.back());
  }

  std::uint16_t tag_of(const Region& r) const { return static_cast<std::uint16_t>(producers_[static_cast<std::size_t>(r.buffer)] + 1); }
  const Buffer& buffer(const Region& r) const { return program_.buffers[static_cast<std::size_t>(r.buffer)]; }
  WeightKind bound_kind() const { return buffer(task_.reads[1]).binding.kind; }

  std::uint32_t narrow(std::int64_t value) {
    if (value < 0 || value >= amk_vm::kNoOffset) overflow_ = true;
    return static_cast<std::uint32_t>(value);
  }
  std::uint32_t activation(const std::vector<Region>& list, std::size_t i) { return narrow(offset_of_(list.at(i).buffer)); }
  std::uint32_t vector(std::int64_t offset) { return narrow(offset); }
  std::uint32_t argmax_partial() { return narrow(offset_of_(task_.writes.back().buffer) + task_.partial * kArgmaxWords * word_bytes_); }

  const Program& program_;
  const Task& task_;
  const GpuLayout& layout_;
  const std::function<std::int64_t(BufferId)>& offset_of_;
  const std::vector<InstructionId>& producers_;
  std::int64_t word_bytes_;
  bool overflow_ = false;
};

}  // namespace

Result<amk_vm::TaskDesc> device_task(const Program& program, const Task& task, const GpuLayout& layout,
                                     const std::function<std::int64_t(BufferId)>& offset_of, const std::vector<InstructionId>& producers,
                                     std::int64_t word_bytes) {
  return Filler(program, task, layout, offset_of, producers, word_bytes).fill();
}

}  // namespace amk
