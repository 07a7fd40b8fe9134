#include <algorithm>

#include "core/program/validator_memory.h"

namespace amk::validation {

namespace {

bool share_position(std::int32_t lo, std::int32_t hi, const Access& access) { return std::max(lo, access.lo) < std::min(hi, access.hi); }

}  // namespace

Verdict ByteTracker::check_group(const Actor& actor, const ReadGroup& group, BufferId writes) const {
  const auto late = [&](Event reader) {
    return unordered(actor, "war", reader, group.what, writes, "overwrites bytes that % may still have to read");
  };
  if (group.many == kNone) {
    for (std::int32_t i = 0; i < group.count; ++i)
      if (const Event reader = group.few[static_cast<std::size_t>(i)]; !happens_before(reader, actor.clock)) return late(reader);
    return {};
  }
  const std::int32_t* readers = clocks_.at(group.many);
  if (covers(actor.clock, readers, sms_)) return {};
  for (std::size_t s = 0; s < sms_; ++s)
    if (const Event reader{static_cast<std::int32_t>(s), readers[s]}; reader.order > 0 && !happens_before(reader, actor.clock)) return late(reader);
  return {};
}

// Everybody who has read bytes of `range` (of `buffer`) did so before the actor.
Verdict ByteTracker::check_readers(const Actor& actor, BufferId id, const Access& range, BufferId writes) const {
  const auto concerned = [&](const ReadGroup& g) {
    return g.what.begin < range.end && range.begin < g.what.end && share_position(g.what.lo, g.what.hi, range);
  };
  const Layout::Span span = layout_.span(id, range.begin, range.end);
  for (std::int32_t c = span.first; c < span.last; ++c)
    for (std::int32_t link = cells_[static_cast<std::size_t>(c)].readers; link != kNone; link = reader_links_[static_cast<std::size_t>(link)].next) {
      const ReadGroup& group = groups_[static_cast<std::size_t>(reader_links_[static_cast<std::size_t>(link)].group)];
      if (!concerned(group)) continue;
      if (Verdict v = check_group(actor, group, writes)) return v;
    }
  for (const std::int32_t g : state(id).wide_groups) {
    const ReadGroup& group = groups_[static_cast<std::size_t>(g)];
    if (!concerned(group)) continue;
    if (Verdict v = check_group(actor, group, writes)) return v;
  }
  return {};
}

void ByteTracker::kill(Entry& e, Interval cell, const Access& range, BufferState& owner) {
  owner.overwritten = true;
  const bool always = range.lo <= e.lo && e.hi <= range.hi;
  if (always && range.begin <= cell.begin && cell.end <= range.end) {
    e.dead = true;
    --owner.live_entries;
    return;
  }
  if (e.kills == kNone) {
    e.kills = static_cast<std::int32_t>(kills_.size());
    kills_.emplace_back();
  }
  Kills& kills = kills_[static_cast<std::size_t>(e.kills)];
  if (!always) {
    kills.sometimes.push_back(range);
    return;
  }
  Interval merged{std::max(range.begin, cell.begin), std::min(range.end, cell.end)};
  auto first = std::lower_bound(kills.whole.begin(), kills.whole.end(), merged.begin,
                                [](const Interval& interval, std::int64_t byte) { return interval.end < byte; });
  auto last = first;
  for (; last != kills.whole.end() && last->begin <= merged.end; ++last) {
    merged.begin = std::min(merged.begin, last->begin);
    merged.end = std::max(merged.end, last->end);
  }
  first = kills.whole.erase(first, last);
  kills.whole.insert(first, merged);
  if (merged.begin <= cell.begin && cell.end <= merged.end) {
    e.dead = true;
    --owner.live_entries;
  }
}

// The actor writes over `range` of another buffer: everything that is live there must have happened before, and lives no longer.
Verdict ByteTracker::overwrite(const Actor& actor, BufferId rival, const Access& range, BufferId writes) {
  if (Verdict v = check_readers(actor, rival, range, writes)) return v;
  BufferState& owner = state(rival);
  const Layout::Span span = layout_.span(rival, range.begin, range.end);
  for (std::int32_t c = span.first; c < span.last; ++c)
    for (std::int32_t i = cells_[static_cast<std::size_t>(c)].entry; i != kNone; i = entry(i).next) {
      Entry& e = entry(i);
      if (e.dead || !share_position(e.lo, e.hi, range)) continue;
      if (!happens_before(e.writer, actor.clock))
        return unordered(actor, "waw", e.writer, range, writes, "writes storage bytes that % writes as well");
      kill(e, cell_bytes(c), range, owner);
    }
  owner.dropped = owner.pending_writes == 0 && owner.live_entries == 0;
  return {};
}

Verdict ByteTracker::write(const Actor& actor, const Access& access) {
  BufferState& s = state(access.buffer);
  make_resident(access.buffer);
  const Layout::Span span = layout_.span(access.buffer, access.begin, access.end);
  for (std::int32_t c = span.first; c < span.last; ++c)
    for (std::int32_t i = cells_[static_cast<std::size_t>(c)].entry; i != kNone; i = entry(i).next)
      if (share_position(entry(i).lo, entry(i).hi, access)) {
        const Interval bytes = cell_bytes(c);
        const Access both{access.buffer, bytes.begin, bytes.end, std::max(entry(i).lo, access.lo), std::min(entry(i).hi, access.hi)};
        return unordered(actor, "double-write", entry(i).writer, both, access.buffer, "");
      }
  if (Verdict v = check_readers(actor, access.buffer, access, access.buffer)) return v;  // inputs: read before they are replaced
  for (std::size_t i = 0; i < s.rivals.size();) {
    const std::int32_t rival = s.rivals[i];
    if (state(rival).dropped) {
      s.rivals[i] = s.rivals.back();
      s.rivals.pop_back();
      continue;
    }
    if (const Access range = translate(access, rival); range.begin < range.end)
      if (Verdict v = overwrite(actor, rival, range, access.buffer)) return v;
    ++i;
  }
  if (previous_ != nullptr)
    if (Verdict v = follows_previous(actor, access, true, nullptr)) return v;
  for (std::int32_t c = span.first; c < span.last; ++c) {
    std::int32_t& head = cells_[static_cast<std::size_t>(c)].entry;
    Entry fresh;
    fresh.writer = actor.self;
    fresh.lo = access.lo;
    fresh.hi = access.hi;
    fresh.next = head;
    head = static_cast<std::int32_t>(entries_.size());
    entries_.push_back(fresh);
    ++s.live_entries;
  }
  --s.pending_writes;
  return {};
}

}  // namespace amk::validation
