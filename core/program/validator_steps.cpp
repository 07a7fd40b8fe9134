// Steps of one launch, which only counters order. Positions grow from step to step, and an access of one step may meet an access of any later one;
// so guards are ignored here: whatever meets the same bytes must be ordered from each step to the next. From the next to all later ones it then
// follows, because a task comes before itself in the next step (its SM's queue).
#include <algorithm>

#include "core/program/validator_memory.h"

namespace amk::validation {

// Buffers that the step before left on the bytes of `id`. What it overwrote whole needs no look: it was ordered before its overwriter, which is
// there.
const std::vector<std::int32_t>& ByteTracker::prior_of(BufferId id) {
  BufferState& mine = state(id);
  if (mine.prior_known) return mine.prior;
  mine.prior_known = true;
  if (buffer(id).space != Space::Activation) {
    if (previous_->state(id).resident) mine.prior.push_back(id);
    return mine.prior;
  }
  const Access whole{id, 0, buffer(id).bytes, 0, program_.max_seq};
  for (const std::int32_t other : previous_->residents_[static_cast<std::size_t>(buffer(id).storage)]) {
    if (previous_->state(other).dropped) continue;
    if (const Access shared = translate(whole, other); shared.begin < shared.end) mine.prior.push_back(other);
  }
  return mine.prior;
}

Verdict ByteTracker::follows_previous(const Actor& actor, const Access& access, bool writes, std::int32_t* needed) {
  for (const std::int32_t other : prior_of(access.buffer)) {
    Access range = translate(access, other);
    if (range.begin == range.end) continue;
    range.lo = 0;
    range.hi = program_.max_seq;
    const Layout::Span span = layout_.span(other, range.begin, range.end);
    for (std::int32_t c = span.first; c < span.last; ++c)
      for (std::int32_t i = previous_->cells_[static_cast<std::size_t>(c)].entry; i != kNone; i = previous_->entry(i).next) {
        const Entry& e = previous_->entry(i);
        if (e.dead) continue;
        if (!happens_before(e.writer, actor.clock))
          return unordered(
              actor, writes ? "waw" : "raw", e.writer, range, access.buffer,
              writes ? "writes storage bytes that % may still write in the step before" : "reads what % may still be writing in the step before");
        if (needed != nullptr) needed[e.writer.sm] = std::max(needed[e.writer.sm], e.writer.order);
      }
    if (!writes) continue;
    if (Verdict v = previous_->check_readers(actor, other, range, access.buffer)) return v;
  }
  return {};
}

}  // namespace amk::validation
