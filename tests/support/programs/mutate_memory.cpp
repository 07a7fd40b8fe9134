// Storages, buffers, regions.
#include <algorithm>
#include <array>

#include "tests/support/programs/mutate_parts.h"

namespace amk::testing {

bool Mutator::storage(Mutation m) {
  const auto is_activation = [&](BufferId id) { return buffer(id).space == Space::Activation; };
  const BufferId a = pick(p().buffers.size(), is_activation);
  const BufferId any = pick(p().buffers.size(), [&](BufferId id) { return is_memory(id); });
  if (a == kNone || any == kNone) return false;
  const BufferId b = pick(p().buffers.size(), [&](BufferId id) { return id != a && is_activation(id); });
  Buffer& first = buffer(a);
  const auto fit = [&](Buffer& moved) {
    Storage& s = p().storages[static_cast<std::size_t>(moved.storage)];
    s.bytes = std::max(s.bytes, moved.offset + moved.bytes);
  };
  suspect_users(a);
  switch (m) {
    case Mutation::AliasPage: {
      if (b == kNone) return false;
      suspect_users(b);
      first.storage = buffer(b).storage;
      first.offset = buffer(b).offset + (coin() ? 0 : 16 * below(4));
      fit(first);
      return true;
    }
    case Mutation::MoveOffset:
      first.offset += 16 * (below(9) - 4) + (rng_.below(8) == 0 ? 4 : 0);
      if (coin() && first.offset >= 0) fit(first);
      return true;
    case Mutation::SwapOffsets:
      if (b == kNone) return false;
      suspect_users(b);
      std::swap(first.offset, buffer(b).offset);
      std::swap(first.storage, buffer(b).storage);
      fit(first), fit(buffer(b));
      return true;
    case Mutation::ShrinkStorage: {
      Storage& s = p().storages[static_cast<std::size_t>(buffer(any).storage)];
      s.bytes -= coin() ? 4 : static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(s.bytes) + 1));
      return true;
    }
    case Mutation::GrowBuffer:
    case Mutation::ShrinkBuffer: {
      Buffer& changed = buffer(any);
      suspect_users(any);
      std::int64_t& dim = changed.shape[rng_.below(changed.shape.size())];
      dim += m == Mutation::GrowBuffer ? 1 + below(4) : -1;
      if (rng_.below(8) != 0) {
        changed.bytes = dtype_bytes(changed.dtype);
        for (const std::int64_t d : changed.shape) changed.bytes *= d;
      }
      if (m == Mutation::GrowBuffer && coin()) fit(changed);
      return true;
    }
    case Mutation::ChangeSpace: {
      Buffer& changed = buffer(any);
      changed.space = std::array{Space::Weight, Space::Activation, Space::Kv, Space::Input, Space::Output, Space::Const}[rng_.below(6)];
      if (rng_.below(4) != 0) p().storages[static_cast<std::size_t>(changed.storage)].space = changed.space;
      return true;
    }
    default:
      return false;
  }
}

bool Mutator::regions(Mutation m) {
  const bool reads = m <= Mutation::DropRead;
  const auto list_of = [&](Task& t) -> std::vector<Region>& { return reads ? t.reads : t.writes; };
  // Regions of weights only matter for their bounds; one in eight is enough of them.
  const bool any_space = rng_.below(8) == 0;
  const auto suits = [&](const Region& r) { return any_space || is_memory(r.buffer); };
  const TaskId id = pick_task([&](Task& t) { return std::any_of(list_of(t).begin(), list_of(t).end(), suits); });
  if (id == kNone) return false;
  std::vector<Region>& list = list_of(task(id));
  Region& r = list[static_cast<std::size_t>(pick(list.size(), [&](std::int32_t i) { return suits(list[static_cast<std::size_t>(i)]); }))];
  const Buffer& b = buffer(r.buffer);
  const std::int64_t element = dtype_bytes(b.dtype);
  const std::int64_t elements = (r.end - r.begin) / element;
  const std::int64_t some = element * (coin() ? 1 : 1 + static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(elements))));
  suspect(id), suspect_users(r.buffer);
  switch (m) {
    case Mutation::ShrinkRead:
    case Mutation::ShrinkWrite:
      if (coin())
        r.begin += some;
      else
        r.end -= some;
      return true;
    case Mutation::ExtendRead:
    case Mutation::ExtendWrite:
      if (coin())
        r.begin -= some;
      else
        r.end += some;
      return true;
    case Mutation::ShiftRead:
    case Mutation::ShiftWrite: {
      const std::int64_t by = coin() ? some : -some;
      r.begin += by, r.end += by;
      return true;
    }
    case Mutation::RedirectRead:
    case Mutation::RedirectWrite: {
      const BufferId to =
          pick(p().buffers.size(), [&](BufferId other) { return other != r.buffer && is_memory(other) && buffer(other).bytes >= r.end; });
      if (to == kNone) return false;
      suspect_users(to);
      r.buffer = to;
      if (coin()) r.pos_stride = 0;
      return true;
    }
    case Mutation::DropRead:
    case Mutation::DropWrite:
      list.erase(list.begin() + (&r - list.data()));
      return true;
    case Mutation::DuplicateWrite: {
      const TaskId other = coin() ? id : pick_task([](const Task&) { return true; });
      suspect(other);
      task(other).writes.push_back(Region(r));
      return true;
    }
    case Mutation::SwapWrites: {
      const TaskId other = pick_task([&](const Task& t) { return &t != &task(id) && !t.writes.empty(); });
      if (other == kNone) return false;
      suspect(other);
      std::swap(r, task(other).writes[rng_.below(task(other).writes.size())]);
      return true;
    }
    default:
      return false;
  }
}

bool Mutator::positions(Mutation m) {
  const auto change_guard = [&](std::int32_t& lo, std::int32_t& hi) {
    const std::int32_t by = coin() ? 1 : 1 + below(static_cast<std::size_t>(p().max_seq));
    switch (rng_.below(4)) {
      case 0:
        lo += by;
        break;
      case 1:
        lo = std::max(0, lo - by);
        break;
      case 2:
        hi = std::max(lo, std::min(hi, p().max_seq) - by);
        break;
      default:
        lo += below(5) - 2;
        break;
    }
  };
  const auto strided = [](const Region& r) { return r.pos_stride != 0; };
  switch (m) {
    case Mutation::TaskGuard: {
      const bool anywhere = coin();
      const TaskId id =
          pick_task([&](const Task& t) { return anywhere || t.pos_lo > 0 || t.op == Opcode::AttentionTile || t.op == Opcode::KvAppend; });
      if (id == kNone) return false;
      suspect(id);
      change_guard(task(id).pos_lo, task(id).pos_hi);
      return true;
    }
    case Mutation::RegionGuard: {
      const TaskId id = pick_task([&](const Task& t) { return !t.reads.empty() && !t.writes.empty(); });
      if (id == kNone) return false;
      std::vector<Region>& list = coin() ? task(id).reads : task(id).writes;
      Region& r = list[rng_.below(list.size())];
      suspect(id), suspect_users(r.buffer);
      change_guard(r.pos_lo, r.pos_hi);
      return true;
    }
    case Mutation::StrideChange: {
      const TaskId id = pick_task([&](const Task& t) { return std::any_of(t.writes.begin(), t.writes.end(), strided); });
      if (id == kNone) return false;
      Region& r = *std::find_if(task(id).writes.begin(), task(id).writes.end(), strided);
      const std::int64_t element = dtype_bytes(buffer(r.buffer).dtype);
      r.pos_stride = std::array<std::int64_t, 5>{0, r.pos_stride * 2, -r.pos_stride, r.pos_stride + element, r.pos_stride - element}[rng_.below(5)];
      suspect(id);
      return true;
    }
    case Mutation::AppendOtherRow: {
      const TaskId id = pick_task([&](const Task& t) { return std::any_of(t.writes.begin(), t.writes.end(), strided); });
      if (id == kNone) return false;
      Region& r = *std::find_if(task(id).writes.begin(), task(id).writes.end(), strided);
      const std::int64_t by = (coin() ? 1 : -1) * r.pos_stride * (coin() ? 1 : p().max_seq);
      r.begin += by, r.end += by;
      suspect(id);
      return true;
    }
    case Mutation::ShortenCache: {
      const BufferId id = pick(p().buffers.size(), [&](BufferId candidate) { return buffer(candidate).space == Space::Kv; });
      if (id == kNone) return false;
      Buffer& b = buffer(id);
      std::int64_t& positions = b.shape[b.shape.size() - 2];
      const std::int64_t before = positions;
      positions += rng_.below(4) == 0 ? 1 : -1;
      b.bytes = b.bytes / before * positions;
      p().storages[static_cast<std::size_t>(b.storage)].bytes = b.bytes;
      return true;
    }
    case Mutation::RaiseMaxSeq:
      p().max_seq += 1 + below(64);
      return true;
    case Mutation::Unalign: {
      const TaskId id = pick_task([](const Task& t) { return !t.reads.empty() && !t.writes.empty(); });
      if (id == kNone) return false;
      std::vector<Region>& list = coin() ? task(id).reads : task(id).writes;
      Region& r = list[rng_.below(list.size())];
      (coin() ? r.begin : r.end) += coin() ? 1 : -1;
      return true;
    }
    default:
      return false;
  }
}

}  // namespace amk::testing
