#include "core/program/validator_report.h"

#include "core/base/json.h"

namespace amk::validation {

namespace {

template <class T>
const T* at(const std::vector<T>& items, std::int32_t index) {
  return index >= 0 && static_cast<std::size_t>(index) < items.size() ? &items[static_cast<std::size_t>(index)] : nullptr;
}

Json place(const Program& program, TaskId id) {
  Json out = {{"id", id}, {"name", task_name(program, id)}};
  if (const Task* task = at(program.tasks, id)) {
    out["sm"] = task->sm;
    out["queue_pos"] = task->queue_pos;
  }
  return out;
}

}  // namespace

Rejection reject(const Program& program, Finding finding) {
  Rejection out;
  out.rule = std::string(finding.rule);
  out.message = std::move(finding.message);
  Json& witness = out.witness;
  if (finding.task != kNone) witness["task"] = task_name(program, finding.task), witness["task_place"] = place(program, finding.task);
  if (finding.other != kNone) witness["other"] = task_name(program, finding.other), witness["other_place"] = place(program, finding.other);
  if (const Buffer* buffer = at(program.buffers, finding.buffer)) {
    witness["buffer"] = buffer->name;
    if (finding.end > finding.begin) witness["bytes"] = {finding.begin, finding.end};
    if (const Storage* storage = at(program.storages, buffer->storage)) witness["storage"] = storage->name;
  }
  if (const Buffer* buffer = at(program.buffers, finding.other_buffer)) witness["other_buffer"] = buffer->name;
  if (finding.pos_hi > finding.pos_lo) witness["positions"] = {finding.pos_lo, finding.pos_hi};
  if (const Counter* counter = at(program.counters, finding.counter)) witness["counter"] = counter->name;
  if (!finding.missing.empty()) witness["missing"] = finding.missing;
  if (!finding.chain.empty()) witness["cycle"] = finding.chain;
  return out;
}

}  // namespace amk::validation
