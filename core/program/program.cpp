#include "core/program/program.h"

namespace amk {

BufferId Program::find_buffer(std::string_view name) const {
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].name == name) return static_cast<BufferId>(i);
  return kNone;
}

std::string_view to_string(Opcode op) {
  switch (op) {
    case Opcode::Embed:
      return "embed";
    case Opcode::RmsNorm:
      return "rms_norm";
    case Opcode::Gemv:
      return "gemv";
    case Opcode::Rope:
      return "rope";
    case Opcode::KvAppend:
      return "kv_append";
    case Opcode::AttentionTile:
      return "attention_tile";
    case Opcode::AttentionCombine:
      return "attention_combine";
    case Opcode::SiluMul:
      return "silu_mul";
    case Opcode::Add:
      return "add";
    case Opcode::ArgmaxPartial:
      return "argmax_partial";
    case Opcode::Argmax:
      return "argmax";
  }
  return "unknown";
}

std::string_view to_string(Matrix matrix) {
  switch (matrix) {
    case Matrix::None:
      return "none";
    case Matrix::Qkv:
      return "qkv";
    case Matrix::O:
      return "o";
    case Matrix::GateUp:
      return "gate_up";
    case Matrix::Down:
      return "down";
    case Matrix::LmHead:
      return "lm_head";
  }
  return "unknown";
}

std::string_view to_string(Space space) {
  switch (space) {
    case Space::Weight:
      return "weight";
    case Space::Activation:
      return "activation";
    case Space::Kv:
      return "kv";
    case Space::Input:
      return "input";
    case Space::Output:
      return "output";
    case Space::Const:
      return "const";
  }
  return "unknown";
}

std::string task_name(const Program& program, TaskId id) {
  // Also called on programs that failed validation: nothing here is taken to be in range.
  if (id < 0 || static_cast<std::size_t>(id) >= program.tasks.size()) return "task " + std::to_string(id);
  const Task& task = program.tasks[static_cast<std::size_t>(id)];
  std::string name;
  if (task.instruction >= 0 && static_cast<std::size_t>(task.instruction) < program.instructions.size())
    name = program.instructions[static_cast<std::size_t>(task.instruction)].name;
  else
    name = to_string(task.op);
  if (task.op == Opcode::AttentionTile) {
    name += "[head " + std::to_string(task.head) + ",split " + std::to_string(task.split) + "/" + std::to_string(task.splits) + "]";
  } else if (task.row_end > task.row_begin) {
    const bool heads = task.op == Opcode::Rope || task.op == Opcode::KvAppend || task.op == Opcode::AttentionCombine;
    name += (heads ? "[heads " : "[rows ") + std::to_string(task.row_begin) + "," + std::to_string(task.row_end) + ")";
  }
  return name + "@sm" + std::to_string(task.sm);
}

}  // namespace amk
