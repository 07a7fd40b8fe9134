// Who last wrote and who has read every byte of one step, checked access by access as the order pass walks the step in an order that extends
// happens-before. Internal to core/program.
//
// Within a step each byte of a buffer is written at most once a position ("double-write" otherwise), so a read has exactly one right source. Storage
// shared by buffers makes it an ordinary hazard: a write to Y over bytes of X must come after everything X had there, and ends X's life there.
// Checking an access only against what is still live is enough: whatever was overwritten was ordered before its overwriter.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/program/validator_clock.h"
#include "core/program/validator_layout.h"
#include "core/program/validator_report.h"

namespace amk::validation {

class ByteTracker {
 public:
  // `previous`: the tracker of the whole step before, when only counters order the steps; null when a kernel boundary does.
  ByteTracker(const Program& program, const Layout& layout, const ByteTracker* previous);

  // Every access of one task: reads, then writes. `clock` holds what happens before the task, and the task itself.
  Verdict access(TaskId id, Event self, const std::int32_t* clock);

 private:
  struct Interval {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  // One write to one cell.
  struct Entry {
    Event writer;
    std::int32_t lo = 0;
    std::int32_t hi = 0;
    std::int32_t next = kNone;   // another write to the cell, at other positions
    std::int32_t kills = kNone;  // into kills_: overwritten in part
    bool dead = false;           // overwritten whole, at every position at which it was written
  };
  struct Kills {
    std::vector<Interval> whole;    // at every position of the entry: sorted, disjoint
    std::vector<Access> sometimes;  // at some
  };
  struct Cell {
    std::int32_t entry = kNone;
    std::int32_t readers = kNone;  // into reader_links_
  };
  // Everybody who reads exactly these bytes at these positions.
  struct ReadGroup {
    Access what;
    std::array<Event, 2> few;
    std::int32_t count = 0;
    std::int32_t many = kNone;    // clock: latest reader of each SM, once there are more than a few
    std::int32_t needed = kNone;  // clock: the writers, where the bytes span many cells
  };
  struct Link {
    std::int32_t group = kNone;
    std::int32_t next = kNone;
  };
  struct BufferState {
    std::vector<std::int32_t> rivals;       // live buffers that share storage bytes with this one
    std::vector<std::int32_t> wide_groups;  // readers of many cells
    std::vector<std::int32_t> prior;        // buffers of the step before on the same bytes; filled on first use
    std::array<std::int32_t, 8> recent{kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone};
    std::int32_t recent_next = 0;
    std::int32_t pending_writes = 0;
    std::int32_t live_entries = 0;
    bool resident = false;
    bool dropped = false;      // written whole and overwritten whole
    bool overwritten = false;  // in part at least
    bool prior_known = false;
  };
  // Where a task stands, for the checks of one access.
  struct Actor {
    TaskId id = kNone;
    Event self;
    const std::int32_t* clock = nullptr;
  };

  // validator_memory.cpp
  Verdict in_place(TaskId id, const Task& task) const;
  std::int64_t sequence_of(const Region& region) const;
  void make_resident(BufferId id);
  // validator_read.cpp
  Verdict read(const Actor& actor, const Access& access);
  Verdict verify_source(const Actor& actor, const Access& access, std::int32_t* needed) const;
  Verdict verify_input(const Actor& actor, const Access& access) const;
  bool overwritten_at(const Entry& entry, const Access& access) const;
  std::int32_t find_group(const Access& access, BufferState& state) const;
  std::int32_t add_group(const Access& access, BufferState& state);
  void add_reader(ReadGroup& group, Event reader);
  // validator_write.cpp
  Verdict write(const Actor& actor, const Access& access);
  Verdict check_readers(const Actor& actor, BufferId buffer, const Access& range, BufferId writes) const;
  Verdict check_group(const Actor& actor, const ReadGroup& group, BufferId writes) const;
  Verdict overwrite(const Actor& actor, BufferId rival, const Access& range, BufferId writes);
  void kill(Entry& entry, Interval cell, const Access& range, BufferState& state);
  // validator_steps.cpp: against the step before
  const std::vector<std::int32_t>& prior_of(BufferId id);
  Verdict follows_previous(const Actor& actor, const Access& access, bool writes, std::int32_t* needed);
  // validator_blame.cpp: who is at fault, when something is
  Verdict no_source(const Actor& actor, const Access& access, Interval bytes) const;
  Verdict unordered(const Actor& actor, std::string_view rule, Event other, const Access& access, BufferId other_buffer, std::string_view how) const;
  Verdict clobbered(const Actor& actor, const Access& access, std::int32_t entry) const;

  const Buffer& buffer(BufferId id) const { return program_.buffers[static_cast<std::size_t>(id)]; }
  BufferState& state(BufferId id) { return states_[static_cast<std::size_t>(id)]; }
  const BufferState& state(BufferId id) const { return states_[static_cast<std::size_t>(id)]; }
  Entry& entry(std::int32_t i) { return entries_[static_cast<std::size_t>(i)]; }
  const Entry& entry(std::int32_t i) const { return entries_[static_cast<std::size_t>(i)]; }
  Interval cell_bytes(std::int32_t cell) const {
    return {layout_.borders[static_cast<std::size_t>(cell)], layout_.borders[static_cast<std::size_t>(cell) + 1]};
  }
  TaskId task_of(Event event) const;
  // The bytes of `access` as bytes of `other`, which may lie elsewhere in the same storage; empty when they do not meet.
  Access translate(const Access& access, BufferId other) const;

  const Program& program_;
  const Layout& layout_;
  const ByteTracker* previous_;
  std::size_t sms_;
  std::vector<BufferState> states_;
  std::vector<Cell> cells_;
  std::vector<Entry> entries_;  // in the order in which they were written
  std::vector<Kills> kills_;
  std::vector<ReadGroup> groups_;
  std::vector<Link> reader_links_;
  std::vector<std::vector<std::int32_t>> residents_;  // [storage]: buffers, in order of first use
  ClockPool clocks_;
};

}  // namespace amk::validation
