#include <algorithm>

#include "core/program/validator_memory.h"

namespace amk::validation {

namespace {

// Up to this many cells a reader is noted at each cell; above, at the buffer, with the clock of everything it needs.
constexpr std::int32_t kNarrowCells = 4;

bool meets(std::int32_t lo, std::int32_t hi, const Access& access) { return std::max(lo, access.lo) < std::min(hi, access.hi); }

}  // namespace

bool ByteTracker::overwritten_at(const Entry& e, const Access& access) const {
  if (e.dead) return true;
  if (e.kills == kNone) return false;
  const Kills& kills = kills_[static_cast<std::size_t>(e.kills)];
  const auto after = std::upper_bound(kills.whole.begin(), kills.whole.end(), access.begin,
                                      [](std::int64_t byte, const Interval& interval) { return byte < interval.end; });
  if (after != kills.whole.end() && after->begin < access.end) return true;
  return std::any_of(kills.sometimes.begin(), kills.sometimes.end(),
                     [&](const Access& k) { return k.begin < access.end && access.begin < k.end && meets(k.lo, k.hi, access); });
}

// Every byte, at every position of the access, comes from a write of this buffer that happens before. With `needed`, the writers are collected
// there as well.
Verdict ByteTracker::verify_source(const Actor& actor, const Access& access, std::int32_t* needed) const {
  const Layout::Span span = layout_.span(access.buffer, access.begin, access.end);
  std::int64_t at = access.begin;
  for (std::int32_t c = span.first; c < span.last; ++c) {
    const Interval bytes = cell_bytes(c);
    if (bytes.begin > at) break;
    const Interval part{std::max(bytes.begin, access.begin), std::min(bytes.end, access.end)};
    std::int64_t positions = 0;  // writes to a cell never share a position, so lengths add up
    for (std::int32_t i = cells_[static_cast<std::size_t>(c)].entry; i != kNone; i = entry(i).next) {
      const Entry& e = entry(i);
      if (!meets(e.lo, e.hi, access)) continue;
      positions += std::min(e.hi, access.hi) - std::max(e.lo, access.lo);
      const Access piece{access.buffer, part.begin, part.end, access.lo, access.hi};
      if (!happens_before(e.writer, actor.clock))
        return unordered(actor, "raw", e.writer, piece, access.buffer, "reads what % may not have written yet");
      if (overwritten_at(e, piece)) return clobbered(actor, piece, i);
      if (needed != nullptr) needed[e.writer.sm] = std::max(needed[e.writer.sm], e.writer.order);
    }
    if (positions != access.hi - access.lo) return no_source(actor, access, part);
    at = bytes.end;
  }
  if (at < access.end) return no_source(actor, access, {at, access.end});
  return {};
}

// Inputs hold what the host, or the step before, put there: a read must come before any write of this step.
Verdict ByteTracker::verify_input(const Actor& actor, const Access& access) const {
  const Layout::Span span = layout_.span(access.buffer, access.begin, access.end);
  for (std::int32_t c = span.first; c < span.last; ++c)
    for (std::int32_t i = cells_[static_cast<std::size_t>(c)].entry; i != kNone; i = entry(i).next)
      if (meets(entry(i).lo, entry(i).hi, access))
        return unordered(actor, "war", entry(i).writer, access, access.buffer, "reads an input that % may have replaced already");
  return {};
}

std::int32_t ByteTracker::find_group(const Access& access, BufferState& s) const {
  for (const std::int32_t g : s.recent) {
    if (g == kNone) continue;
    const Access& what = groups_[static_cast<std::size_t>(g)].what;
    if (what.begin == access.begin && what.end == access.end && what.lo == access.lo && what.hi == access.hi) return g;
  }
  return kNone;
}

std::int32_t ByteTracker::add_group(const Access& access, BufferState& s) {
  const auto index = static_cast<std::int32_t>(groups_.size());
  groups_.emplace_back();
  groups_.back().what = access;
  s.recent[static_cast<std::size_t>(s.recent_next)] = index;
  s.recent_next = (s.recent_next + 1) % static_cast<std::int32_t>(s.recent.size());
  const Layout::Span span = layout_.span(access.buffer, access.begin, access.end);
  if (span.last - span.first > kNarrowCells) {
    s.wide_groups.push_back(index);
    groups_.back().needed = clocks_.allocate();
    return index;
  }
  for (std::int32_t c = span.first; c < span.last; ++c) {
    std::int32_t& head = cells_[static_cast<std::size_t>(c)].readers;
    reader_links_.push_back({index, head});
    head = static_cast<std::int32_t>(reader_links_.size() - 1);
  }
  return index;
}

void ByteTracker::add_reader(ReadGroup& group, Event reader) {
  if (group.many == kNone) {
    for (std::int32_t i = 0; i < group.count; ++i)
      if (Event& e = group.few[static_cast<std::size_t>(i)]; e.sm == reader.sm) {
        e.order = std::max(e.order, reader.order);
        return;
      }
    if (group.count < static_cast<std::int32_t>(group.few.size())) {
      group.few[static_cast<std::size_t>(group.count++)] = reader;
      return;
    }
    group.many = clocks_.allocate();
    for (const Event& e : group.few) clocks_.at(group.many)[e.sm] = e.order;
  }
  std::int32_t& latest = clocks_.at(group.many)[reader.sm];
  latest = std::max(latest, reader.order);
}

Verdict ByteTracker::read(const Actor& actor, const Access& access) {
  BufferState& s = state(access.buffer);
  const bool input = buffer(access.buffer).space == Space::Input;
  if (input && layout_.writes[static_cast<std::size_t>(access.buffer)] == 0) return {};  // nobody ever writes it
  make_resident(access.buffer);
  std::int32_t g = find_group(access, s);
  const bool known = g != kNone;
  if (!known) g = add_group(access, s);
  std::int32_t* needed = groups_[static_cast<std::size_t>(g)].needed == kNone ? nullptr : clocks_.at(groups_[static_cast<std::size_t>(g)].needed);
  // What an earlier reader of the same bytes needed is all there is to check, unless something was overwritten since.
  const bool quick = known && !input && needed != nullptr && !s.overwritten && covers(actor.clock, needed, sms_);
  if (!quick) {
    if (Verdict v = input ? verify_input(actor, access) : verify_source(actor, access, needed)) return v;
    if (previous_ != nullptr)
      if (Verdict v = follows_previous(actor, access, false, needed)) return v;
  }
  add_reader(groups_[static_cast<std::size_t>(g)], actor.self);
  return {};
}

}  // namespace amk::validation
