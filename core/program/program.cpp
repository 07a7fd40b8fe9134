#include "core/program/program.h"

#include <algorithm>

#include "core/program/json_names.h"

namespace amk {

BufferId Program::find_buffer(std::string_view name) const {
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].name == name) return static_cast<BufferId>(i);
  return kNone;
}

std::int64_t cache_bytes(const Program& program, const Task& task) {
  const AttentionShape& a = program.attention;
  if (task.op != Opcode::AttentionTile || a.kv_block < 1 || a.split_step < 1 || task.splits < 1 || task.split < 0) return 0;
  std::int64_t positions = 0, element = 0;
  for (std::int64_t split = task.split; split < task.splits; split += a.split_step)
    for (std::int64_t at = split * a.kv_block; at < program.max_seq; at += std::int64_t{task.splits} * a.kv_block)
      positions += std::min<std::int64_t>(a.kv_block, program.max_seq - at);
  for (const Region& region : task.reads) {
    if (region.buffer < 0 || static_cast<std::size_t>(region.buffer) >= program.buffers.size()) continue;
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(region.buffer)];
    if (buffer.space == Space::Kv) element = dtype_bytes(buffer.dtype);
  }
  return 2 * positions * program.model.head_dim * element;
}

namespace {
std::string_view known(std::string_view name) { return name.empty() ? "unknown" : name; }  // values outside the enumeration reach witnesses too
}  // namespace

std::string_view to_string(Opcode op) { return known(program_json::name_of(program_json::kOpcodes, op)); }
std::string_view to_string(Matrix matrix) { return known(program_json::name_of(program_json::kMatrices, matrix)); }
std::string_view to_string(Space space) { return known(program_json::name_of(program_json::kSpaces, space)); }

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
    name += (program.batch > 1 ? "[sequence " + std::to_string(task.seq) + ",head " : "[head ") + std::to_string(task.head) + ",split " +
            std::to_string(task.split) + "/" + std::to_string(task.splits) + "]";
  } else if (task.op == Opcode::Argmax && program.batch > 1) {
    name += "[sequence " + std::to_string(task.seq) + "]";
  } else if (task.op == Opcode::AttentionO) {
    name += "[head " + std::to_string(task.head) + ",rows " + std::to_string(task.row_begin) + "," + std::to_string(task.row_end) + ")";
  } else if (task.row_end > task.row_begin) {
    const bool heads = task.op == Opcode::Rope || task.op == Opcode::KvAppend || task.op == Opcode::AttentionCombine;
    name += (heads ? "[heads " : "[rows ") + std::to_string(task.row_begin) + "," + std::to_string(task.row_end) + ")";
  }
  return name + "@sm" + std::to_string(task.sm);
}

}  // namespace amk
