#include "kernels/megakernel/device_tables.h"

#include <algorithm>

#include "kernels/megakernel/device_rules.h"
#include "kernels/megakernel/device_tasks.h"

namespace amk {
namespace {

// The edges from the step before are the SM's, not the task's: they come behind all of a queue's others.
bool within_step(const Wait& wait) { return wait.target > 0; }
std::int64_t waits_within(const Task& task) { return std::count_if(task.waits.begin(), task.waits.end(), within_step); }

class Tables {
 public:
  Tables(const PlanInput& in, const DeviceShapes& shapes, DevicePlan& plan)
      : program_(in.program), config_(in.config), options_(in.options), s_(shapes), plan_(plan), layout_(in.spec(), in.config.kernel.weight_layout) {}

  Result<std::int64_t> make() {
    place_activations();
    place_given();
    AMK_CHECK(fill());
    return kv_now_;
  }

 private:
  // Flagged: every word is a packet of 8 bytes with its tag.
  std::int64_t widen(std::int64_t bytes) const { return config_.kernel.publish == Publish::Flagged ? 2 * bytes : bytes; }

  void place_activations() {
    std::int64_t at = kGuardBytes;
    const auto place = [&](std::int64_t bytes) {
      const StoragePlace out{at, bytes};
      at = round_up(at + bytes, 128) + kGuardBytes;
      return out;
    };
    for (const Storage& s : program_.storages) plan_.storages.push_back(s.space == Space::Activation ? place(widen(s.bytes)) : StoragePlace{});
    if (config_.kernel.publish == Publish::Flagged) {  // this step's k and v rows, one layer at a time
      plan_.storages.push_back(place(widen(std::int64_t{2} * program_.batch * program_.model.kv_rows() * dtype_bytes(s_.format.kv))));
      kv_now_ = plan_.storages.back().offset;
    }
    plan_.activation_bytes = at;
  }

  void place_given() {
    for (const Buffer& b : program_.buffers) {
      if (!given_vector(b)) continue;
      const std::int64_t bytes = program_.storages[static_cast<std::size_t>(b.storage)].bytes;
      plan_.storages[static_cast<std::size_t>(b.storage)] = {plan_.activation_bytes, bytes};
      plan_.activation_bytes = round_up(plan_.activation_bytes + bytes, 128) + kGuardBytes;
    }
  }

  amk_vm::WaitDesc wait_desc(const Wait& wait) const {
    const Counter& counter = program_.counters[static_cast<std::size_t>(wait.counter)];
    return {static_cast<std::uint32_t>(wait.counter), static_cast<std::uint32_t>(counter.fan_in), static_cast<std::uint32_t>(wait.target), 0};
  }

  amk_vm::StreamDesc stream_desc(const Task& task, const amk_vm::TaskDesc& desc) const {
    if (task.op == Opcode::AttentionTile) return {desc.layer, desc.head, desc.split, amk_vm::kStreamCache + desc.matrix * amk_vm::kStreamKinds};
    const RowShape& shape = s_.rows_of(task.matrix);
    const std::int64_t rows = task.row_end - task.row_begin, units = round_up(rows, kRowUnit) / kRowUnit;
    if (s_.slices)
      return {desc.weight, static_cast<std::uint32_t>(units * shape.unit_bytes), static_cast<std::uint32_t>(shape.group_units * shape.unit_bytes),
              amk_vm::kStreamWeights};
    return {desc.weight, static_cast<std::uint32_t>((s_.packed ? units : rows) * shape.segs_per_unit * shape.seg_bytes),
            static_cast<std::uint32_t>(shape.segs_per_chunk * shape.seg_bytes),
            s_.wide_slots > 0 && task.matrix == Matrix::Down ? amk_vm::kStreamWide : amk_vm::kStreamWeights};
  }

  Status fill() {
    const auto offset_of = [this](BufferId id) -> std::int64_t {
      const Buffer& b = program_.buffers[static_cast<std::size_t>(id)];
      return plan_.storages[static_cast<std::size_t>(b.storage)].offset + widen(b.offset);
    };
    // The one instruction that writes a buffer, for tags.
    std::vector<InstructionId> producers(program_.buffers.size(), kNone);
    for (const Task& task : program_.tasks) {
      for (const Region& r : task.writes) producers[static_cast<std::size_t>(r.buffer)] = task.instruction;
    }
    std::vector<TaskId> releases = signals_of_steps(program_, config_);
    std::sort(releases.begin(), releases.end());
    for (std::size_t sm = 0; sm < program_.queues.size(); ++sm) {
      amk_vm::QueueDesc queue{};
      queue.task_first = static_cast<std::uint32_t>(plan_.tasks.size());
      queue.wait_first = static_cast<std::uint32_t>(plan_.waits.size());
      queue.stream_first = static_cast<std::uint32_t>(plan_.streams.size());
      for (const TaskId id : program_.queues[sm]) {
        const Task& task = program_.tasks[static_cast<std::size_t>(id)];
        AMK_TRY(desc, device_task(program_, task, layout_, offset_of, producers, widen(4)));
        desc.wait_first = static_cast<std::uint16_t>(plan_.waits.size() - queue.wait_first);
        desc.wait_count = static_cast<std::uint16_t>(waits_within(task));
        for (const Wait& wait : task.waits) {
          if (within_step(wait)) plan_.waits.push_back(wait_desc(wait));
        }
        if (std::binary_search(releases.begin(), releases.end(), id)) desc.fused |= amk_vm::kSignalsStep;
        if (options_.fault_hang && sm == 0 && plan_.tasks.size() == queue.task_first) desc.signal = amk_vm::kNoOffset;
        plan_.tasks.push_back(desc);
        if (s_.takes_ring(task)) plan_.streams.push_back(stream_desc(task, desc));
      }
      queue.step_first = static_cast<std::uint32_t>(plan_.waits.size()) - queue.wait_first;
      if (s_.persistent && !program_.queues[sm].empty())
        for (const Wait& wait : program_.tasks[static_cast<std::size_t>(program_.queues[sm].front())].waits)
          if (!within_step(wait)) plan_.waits.push_back(wait_desc(wait));
      queue.step_count = static_cast<std::uint32_t>(plan_.waits.size()) - queue.wait_first - queue.step_first;
      queue.task_count = static_cast<std::uint32_t>(plan_.tasks.size()) - queue.task_first;
      queue.wait_count = static_cast<std::uint32_t>(plan_.waits.size()) - queue.wait_first;
      queue.stream_count = static_cast<std::uint32_t>(plan_.streams.size()) - queue.stream_first;
      plan_.queues.push_back(queue);
      plan_.task_ids.push_back(program_.queues[sm]);
    }
    return {};
  }

  const Program& program_;
  const ScheduleConfig& config_;
  const PlanOptions& options_;
  const DeviceShapes& s_;
  DevicePlan& plan_;
  const GpuLayout layout_;
  std::int64_t kv_now_ = 0;
};

}  // namespace

Result<TableSize> measure_tables(const Program& program, const DeviceShapes& shapes) {
  TableSize size;
  for (std::size_t sm = 0; sm < program.queues.size(); ++sm) {
    const std::vector<TaskId>& queue = program.queues[sm];
    const std::vector<TaskId>& stream = program.streams[sm];
    std::int64_t waits = 0;
    std::size_t streamed = 0;
    bool in_order = true;
    for (const TaskId id : queue) {
      const Task& task = program.tasks[static_cast<std::size_t>(id)];
      constexpr std::int64_t kMostWaits = 65535;
      if (waits + static_cast<std::int64_t>(task.waits.size()) > kMostWaits)
        return reject_plan("waits", "one multiprocessor has more than 65,535 waits", {{"sm", sm}});
      waits += waits_within(task);
      if (!shapes.takes_ring(task)) continue;
      in_order = in_order && streamed < stream.size() && stream[streamed] == id;
      ++streamed;
    }
    if (shapes.slots > 0 && (!in_order || streamed != stream.size()))
      return reject_plan("stream-order", "the weight stream of SM " + std::to_string(sm) + " is not its queue's order", {{"sm", sm}});
    if (shapes.persistent && !queue.empty()) {
      const Task& first = program.tasks[static_cast<std::size_t>(queue.front())];
      waits += static_cast<std::int64_t>(first.waits.size()) - waits_within(first);
    }
    const auto tasks = static_cast<std::int64_t>(queue.size());
    size.longest_queue = std::max(size.longest_queue, static_cast<std::uint32_t>(tasks));
    size.bytes = std::max(size.bytes,
                          tasks * static_cast<std::int64_t>(sizeof(amk_vm::TaskDesc)) + waits * static_cast<std::int64_t>(sizeof(amk_vm::WaitDesc)));
  }
  return size;
}

Result<std::int64_t> make_tables(const PlanInput& in, const DeviceShapes& shapes, DevicePlan& plan) { return Tables(in, shapes, plan).make(); }

}  // namespace amk
