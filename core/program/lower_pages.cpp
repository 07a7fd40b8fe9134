#include "core/program/lower_pages.h"

#include <algorithm>

#include "core/program/packing.h"

namespace amk::lowering {
namespace {

std::int64_t aligned(std::int64_t bytes) { return (bytes + kStorageAlign - 1) / kStorageAlign * kStorageAlign; }

class Pages {
 public:
  Pages(const Plan& plan, Program& program) : plan_(plan), program_(program) {
    for (std::size_t b = 0; b < program.buffers.size(); ++b)
      if (program.buffers[b].space == Space::Activation) activations_.push_back(static_cast<BufferId>(b));
    // In the order in which a step first writes them.
    std::stable_sort(activations_.begin(), activations_.end(), [&](BufferId a, BufferId b) { return producer(a) < producer(b); });
  }

  void separate() {
    for (BufferId b : activations_) put(b, storage(buffer(b).name, aligned(buffer(b).bytes)), 0);
  }

  // Greedy colouring of the interference graph, largest first: a page is as large as its largest buffer, so large ones should meet.
  void graph_color() {
    std::vector<BufferId> by_size = activations_;
    std::stable_sort(by_size.begin(), by_size.end(), [&](BufferId a, BufferId b) { return buffer(a).bytes > buffer(b).bytes; });
    std::vector<std::vector<BufferId>> pages;
    for (BufferId b : by_size) {
      auto page = std::find_if(pages.begin(), pages.end(), [&](const std::vector<BufferId>& members) {
        return std::none_of(members.begin(), members.end(), [&](BufferId m) { return interfere(m, b); });
      });
      if (page == pages.end()) page = pages.emplace(pages.end());
      page->push_back(b);
    }
    for (std::size_t p = 0; p < pages.size(); ++p) {
      const StorageId id = storage("page" + std::to_string(p), aligned(buffer(pages[p].front()).bytes));
      for (BufferId b : pages[p]) put(b, id, 0);
    }
  }

  // Linear scan: buffers in order of first write, each at the lowest offset that no buffer still in use covers.
  void linear() {
    struct Placed {
      BufferId buffer;
      std::int64_t begin, end;
    };
    std::vector<Placed> live;
    std::int64_t arena = 0;
    std::vector<std::pair<BufferId, std::int64_t>> offsets;
    for (BufferId b : activations_) {
      std::vector<Placed> busy;
      for (const Placed& p : live)
        if (!over_before(p.buffer, b)) busy.push_back(p);
      std::sort(busy.begin(), busy.end(), [](const Placed& x, const Placed& y) { return x.begin < y.begin; });
      const std::int64_t bytes = aligned(buffer(b).bytes);
      std::int64_t at = 0;
      for (const Placed& p : busy) {
        if (p.begin - at >= bytes) break;
        at = std::max(at, p.end);
      }
      live.push_back({b, at, at + bytes});
      arena = std::max(arena, at + bytes);
      offsets.emplace_back(b, at);
    }
    const StorageId id = storage("arena", arena);
    for (const auto& [b, offset] : offsets) put(b, id, offset);
  }

  StorageId storage(std::string name, std::int64_t bytes, Space space = Space::Activation) {
    program_.storages.push_back({std::move(name), space, bytes});
    return static_cast<StorageId>(program_.storages.size() - 1);
  }
  void put(BufferId b, StorageId id, std::int64_t offset) {
    buffer(b).storage = id;
    buffer(b).offset = offset;
  }

 private:
  Buffer& buffer(BufferId b) { return program_.buffers[static_cast<std::size_t>(b)]; }
  InstructionId producer(BufferId b) const { return plan_.producer[static_cast<std::size_t>(b)]; }
  bool over_before(BufferId first, BufferId second) const {
    const InstructionId writer = producer(second);
    if (!plan_.order.before(producer(first), writer)) return false;
    const auto& readers = plan_.consumers[static_cast<std::size_t>(first)];
    return std::all_of(readers.begin(), readers.end(), [&](InstructionId reader) { return plan_.order.before(reader, writer); });
  }
  bool interfere(BufferId a, BufferId b) const { return !over_before(a, b) && !over_before(b, a); }

  const Plan& plan_;
  Program& program_;
  std::vector<BufferId> activations_;
};

// Packed weights are stored in whole row units, so that the last tile of a matrix can be copied like any other.
std::int64_t stored_bytes(const ModelSpec& spec, const ScheduleConfig& config, const Buffer& buffer) {
  if (buffer.space != Space::Weight || buffer.binding.matrix == Matrix::None || config.kernel.weight_layout == WeightLayout::Row) return buffer.bytes;
  const std::int64_t rows = packed_rows(spec, buffer.binding.matrix);
  return buffer.bytes / rows * ((rows + kRowUnit - 1) / kRowUnit * kRowUnit);
}

}  // namespace

void assign_storage(const ModelSpec& spec, const ScheduleConfig& config, const Plan& plan, Program& program) {
  Pages pages(plan, program);
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.space == Space::Activation) continue;
    pages.put(static_cast<BufferId>(b), pages.storage(buffer.name, aligned(stored_bytes(spec, config, buffer)), buffer.space), 0);
  }
  switch (config.page_allocation) {
    case PageAllocation::None:
      pages.separate();
      break;
    case PageAllocation::GraphColor:
      pages.graph_color();
      break;
    case PageAllocation::Linear:
      pages.linear();
      break;
  }
}

}  // namespace amk::lowering
