// Queues, weight streams, the ring.
#include <algorithm>

#include "tests/support/programs/mutate_parts.h"

namespace amk::testing {

bool Mutator::placement(Mutation m) {
  const TaskId id = pick_task([](const Task&) { return true; });
  if (id == kNone) return false;
  const std::int32_t sm = task(id).sm;
  const auto here = static_cast<std::size_t>(task(id).queue_pos);
  suspect(id);
  switch (m) {
    case Mutation::SwapQueue: {
      if (queue(sm).size() < 2) return false;
      const bool near = coin();
      const std::size_t other = near ? (here + 1) % queue(sm).size() : rng_.below(queue(sm).size());
      suspect(queue(sm)[other]);
      std::swap(queue(sm)[here], queue(sm)[other]);
      number_queues();
      if (rng_.below(4) != 0) rebuild_streams();
      return true;
    }
    case Mutation::MoveTask:
    case Mutation::MoveTaskUntidily: {
      const std::int32_t to = below(p().queues.size());
      queue(sm).erase(queue(sm).begin() + static_cast<std::ptrdiff_t>(here));
      // Near the same place in the layer order, or anywhere.
      const std::size_t size = queue(to).size();
      const auto place = coin() ? std::min(size, here) : rng_.below(size + 1);
      queue(to).insert(queue(to).begin() + static_cast<std::ptrdiff_t>(place), id);
      if (m == Mutation::MoveTaskUntidily) {
        if (coin()) task(id).sm = to;
        if (coin()) rebuild_streams();
        return true;
      }
      number_queues();
      rebuild_streams();
      return true;
    }
    case Mutation::DuplicateInQueue:
      queue(sm).insert(queue(sm).begin() + static_cast<std::ptrdiff_t>(rng_.below(queue(sm).size() + 1)), id);
      if (coin()) number_queues(), rebuild_streams();
      return true;
    case Mutation::DropFromQueue:
      queue(sm).erase(queue(sm).begin() + static_cast<std::ptrdiff_t>(here));
      if (coin()) number_queues(), rebuild_streams();
      return true;
    case Mutation::DuplicateTask: {
      const auto copy = static_cast<TaskId>(p().tasks.size());
      p().tasks.push_back(Task(task(id)));
      const std::int32_t to = coin() ? sm : below(p().queues.size());
      queue(to).insert(queue(to).begin() + static_cast<std::ptrdiff_t>(coin() && to == sm ? here + 1 : rng_.below(queue(to).size() + 1)), copy);
      number_queues();
      rebuild_streams();
      if (coin()) rebuild_counts();
      suspect(copy);
      return true;
    }
    case Mutation::DropTask: {
      suspect_counter(std::max(task(id).signal, 0));
      p().tasks.erase(p().tasks.begin() + id);
      for (auto* lists : {&p().queues, &p().streams})
        for (auto& list : *lists) {
          std::erase(list, id);
          for (TaskId& other : list) other -= other > id ? 1 : 0;
        }
      for (TaskId& other : out_.suspects) other -= other > id ? 1 : 0;
      number_queues();
      if (coin()) rebuild_counts();
      return true;
    }
    default:
      return false;
  }
}

bool Mutator::streams(Mutation m) {
  const std::int32_t sm = pick(p().streams.size(), [&](std::int32_t s) { return !p().streams[static_cast<std::size_t>(s)].empty(); });
  if (sm == kNone) return false;
  std::vector<TaskId>& stream = p().streams[static_cast<std::size_t>(sm)];
  const std::size_t at = rng_.below(stream.size());
  suspect(stream[at]);
  Ring& ring = p().ring;
  switch (m) {
    case Mutation::SwapStream: {
      if (stream.size() < 2) return false;
      const std::size_t other = coin() ? (at + 1) % stream.size() : rng_.below(stream.size());
      std::swap(stream[at], stream[other]);
      return true;
    }
    case Mutation::DropFromStream:
      stream.erase(stream.begin() + static_cast<std::ptrdiff_t>(at));
      return true;
    case Mutation::DuplicateInStream:
      stream.insert(stream.begin() + static_cast<std::ptrdiff_t>(rng_.below(stream.size() + 1)), stream[at]);
      return true;
    case Mutation::ForeignInStream: {
      const TaskId foreign = pick_task([&](const Task& t) { return t.sm != sm; });
      if (foreign == kNone) return false;
      if (coin())
        stream[at] = foreign;
      else
        stream.insert(stream.begin() + static_cast<std::ptrdiff_t>(at), foreign);
      return true;
    }
    case Mutation::ShortenRing:
      ring.ring_bytes = coin() ? ring.ring_bytes - ring.chunk_bytes * (1 + below(3))
                               : static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(ring.ring_bytes) + 1));
      return true;
    case Mutation::ChunkOverRing:
      ring.chunk_bytes = coin() ? ring.ring_bytes + 16 : ring.chunk_bytes * (2 + below(64));
      return true;
    case Mutation::NoWindow:
      ring.inflight_chunks = coin() ? 0 : ring.inflight_chunks + 1 + below(8);
      return true;
    case Mutation::ChangeRingBytes: {
      Task& t = task(stream[at]);
      t.ring_bytes += (coin() ? 16 : -16) * (1 + below(4));
      if (t.ring_bytes < 0 || coin()) t.ring_bytes = 0;
      return true;
    }
    case Mutation::ReduceDepth:
      ring.depth = coin() ? 0 : below(12) - 1;
      return true;
    default:
      return false;
  }
}

}  // namespace amk::testing
