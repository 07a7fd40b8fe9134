// Slow paths: a check has failed, and the witness has to name both sides.
#include <algorithm>

#include "core/program/validator_memory.h"

namespace amk::validation {

namespace {

bool overlap(const Access& a, const Access& b) { return a.begin < b.end && b.begin < a.end && std::max(a.lo, b.lo) < std::min(a.hi, b.hi); }

std::string bytes_of(const Access& a, const Buffer& buffer) { return cat("bytes [", a.begin, ",", a.end, ") of ", buffer.name); }

}  // namespace

// `bytes` have no write that has happened, at some position of the access. Either the writer is not ordered before, or there is none.
Verdict ByteTracker::no_source(const Actor& actor, const Access& access, Interval bytes) const {
  Access want{access.buffer, bytes.begin, bytes.end, access.lo, access.hi};
  // The first byte stands for all of the hole; its first uncovered position for the positions.
  want.end = bytes.begin + 1;
  const Layout::Span span = layout_.span(access.buffer, want.begin, want.end);
  for (bool moved = true; moved && span.first < span.last;) {
    moved = false;
    for (std::int32_t i = cells_[static_cast<std::size_t>(span.first)].entry; i != kNone; i = entry(i).next)
      if (entry(i).lo <= want.lo && want.lo < entry(i).hi) want.lo = entry(i).hi, moved = true;
  }
  TaskId writer = kNone;
  TaskId elsewhere = kNone;  // writes the bytes, at other positions
  std::int32_t writer_hi = access.hi;
  for (std::size_t t = 0; t < program_.tasks.size() && writer == kNone; ++t)
    for (const Region& region : program_.tasks[t].writes) {
      if (region.buffer != access.buffer) continue;
      for (const Access& a : accesses_of(program_, program_.tasks[t], region)) {
        if (a.begin > want.begin || want.begin >= a.end) continue;
        elsewhere = static_cast<TaskId>(t);
        if (a.lo <= want.lo && want.lo < a.hi)
          writer = elsewhere, writer_hi = std::min(writer_hi, a.hi);
        else if (a.lo > want.lo)
          writer_hi = std::min(writer_hi, a.lo);
      }
    }
  const Buffer& b = buffer(access.buffer);
  const std::string reader = task_name(program_, actor.id);
  const std::string where =
      cat("bytes [", bytes.begin, ",", bytes.end, ") of ", b.name, b.space == Space::Kv ? " (columns of the launch position's rows)" : "");
  Finding finding;
  finding.rule = writer != kNone || elsewhere == kNone ? "raw" : "length";
  finding.task = actor.id;
  finding.other = writer != kNone ? writer : elsewhere;
  finding.buffer = access.buffer;
  finding.begin = bytes.begin;
  finding.end = bytes.end;
  finding.pos_lo = want.lo;
  finding.pos_hi = std::max(writer_hi, want.lo + 1);
  if (writer != kNone) {
    finding.message = cat(reader, " reads ", where, ", which ", task_name(program_, writer), " writes, but nothing makes it wait for that");
    finding.missing = cat("edge ", task_name(program_, writer), " -> ", reader);
  } else if (elsewhere != kNone) {
    finding.message = cat(reader, " reads ", where, ", which nobody writes at position ", want.lo);
    finding.missing = cat("a write at positions [", finding.pos_lo, ",", finding.pos_hi, ")");
  } else {
    finding.message = cat(reader, " reads ", where, ", which nobody writes");
    finding.missing = cat("a write of those bytes before ", reader);
  }
  return reject(program_, std::move(finding));
}

Verdict ByteTracker::unordered(const Actor& actor, std::string_view rule, Event other, const Access& access, BufferId other_buffer,
                               std::string_view how) const {
  const TaskId id = task_of(other);
  const std::string mine = task_name(program_, actor.id);
  const std::string theirs = task_name(program_, id);
  Finding finding;
  finding.rule = rule;
  finding.task = actor.id;
  finding.other = id;
  finding.buffer = access.buffer;
  finding.other_buffer = other_buffer == access.buffer ? kNone : other_buffer;
  finding.begin = access.begin;
  finding.end = access.end;
  finding.pos_lo = access.lo;
  finding.pos_hi = access.hi;
  if (rule == "double-write") {
    finding.message = cat(mine, " and ", theirs, " both write ", bytes_of(access, buffer(access.buffer)), ": the result depends on who comes last");
    finding.missing = "one owner for each byte";
  } else {
    const std::size_t mark = how.find('%');  // stands for the other task
    finding.message =
        cat(mine, " ", how.substr(0, mark), theirs, how.substr(mark + 1), ": ", bytes_of(access, buffer(access.buffer)), "; no edge orders the two");
    finding.missing = cat("edge ", theirs, " -> ", mine);
  }
  return reject(program_, std::move(finding));
}

// The actor's source was overwritten by another buffer's write before the actor came: for certain, or in some interleavings.
Verdict ByteTracker::clobbered(const Actor& actor, const Access& access, std::int32_t source) const {
  const Buffer& mine = buffer(access.buffer);
  for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
    const auto other = static_cast<BufferId>(b);
    if (other == access.buffer || program_.buffers[b].storage != mine.storage) continue;
    const Access range = translate(access, other);
    if (range.begin == range.end) continue;
    const Layout::Span span = layout_.span(other, range.begin, range.end);
    for (std::int32_t c = span.first; c < span.last; ++c)
      for (std::int32_t i = cells_[static_cast<std::size_t>(c)].entry; i != kNone; i = entry(i).next) {
        const Interval bytes = cell_bytes(c);
        if (i <= source || !overlap({other, bytes.begin, bytes.end, entry(i).lo, entry(i).hi}, range)) continue;
        if (!happens_before(entry(i).writer, actor.clock))
          return unordered(actor, "war", entry(i).writer, access, other, "reads bytes that % may have overwritten already");
        Finding finding;
        finding.rule = "page-alias";
        finding.task = actor.id;
        finding.other = task_of(entry(i).writer);
        finding.buffer = access.buffer;
        finding.other_buffer = other;
        finding.begin = access.begin;
        finding.end = access.end;
        finding.message = cat(task_name(program_, actor.id), " reads ", bytes_of(access, mine), ", but ", task_name(program_, finding.other),
                              " has put ", program_.buffers[b].name, " over them: both live in the same storage at once");
        finding.missing = cat("storage of its own for ", mine.name, ", or the read before that write");
        return reject(program_, std::move(finding));
      }
  }
  // Unreachable while kill() is called from overwrite() alone; still an answer, never a pass.
  return unordered(actor, "page-alias", entry(source).writer, access, kNone, "reads bytes of % that were overwritten");
}

}  // namespace amk::validation
