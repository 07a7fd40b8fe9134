// Executes a program abstractly: queues, counters, rings and memory, but version tags in the place of numbers. Every byte knows which buffer and
// which step it was written for; a task that reads another version than the one its buffer must hold at that step has been broken by the interleaving
// (or by the program). Nothing here is shared with core/program/validator*: the two must agree by what they mean, not by what they compute with.
//
// Tasks run in phases (start, take weights from the ring, read, write, signal), so another task can come between any two. A hold stops one task
// before a phase until nothing else can move: counters only grow, so what can run without the held task does run, whatever the order.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "core/program/program.h"

namespace amk::testing {

struct Breakage {
  std::string kind;  // "wrong-read", "lost-write", "double-write", "deadlock", "unwritten", "wrong-weights", "crash"
  std::string what;
};

// Crashes that need no schedule: bad indices, bytes outside a buffer or a storage, torn elements, writes to weights.
std::optional<Breakage> static_breakage(const Program& program);

enum class Phase : std::uint8_t { Start, Weights, Read, Write, Signal };

struct Schedule {
  TaskId held = kNone;  // in every step
  Phase before = Phase::Read;
  std::uint64_t seed = 0;  // 0: SMs in ascending order, 1: descending, else random with random bursts
};

// One launch position sequence: steps at positions first_position, +1, … (program without static breakage; first_position + steps <= max_seq).
// Not thread-safe.
class Simulator {
 public:
  Simulator(const Program& program, std::int32_t first_position, std::uint32_t first_epoch, int steps);
  std::optional<Breakage> run(const Schedule& schedule);
  // Every interleaving of phases: exact, for programs of a few tasks. Stops at `max_states` and then says so in `complete`.
  std::optional<Breakage> explore(std::int64_t max_states, bool& complete);

 private:
  // A maximal run of bytes of one storage that every access of these steps takes whole or not at all.
  struct Piece {
    std::int32_t first = 0;
    std::int32_t last = 0;
  };
  struct Touch {
    BufferId buffer = kNone;
    Piece pieces;
  };
  struct Instance {  // a task at one step
    std::vector<Touch> reads;
    std::vector<Touch> writes;
    bool tears_itself = false;
  };
  struct Slot {
    TaskId task = kNone;
    std::int32_t step = 0;
    std::int64_t chunk = 0;
  };
  struct Sm {
    std::int32_t step = 0;
    std::int32_t at = 0;  // in its queue
    Phase phase = Phase::Start;
    std::int64_t chunk = 0;
    // Producer: next task of the stream, and its next chunk.
    std::int32_t load_step = 0;
    std::int32_t load_at = 0;
    std::int64_t load_chunk = 0;
    std::int64_t loaded_tasks = 0;
    std::int64_t finished_ring_tasks = 0;
    std::vector<Slot> slots;  // from first_slot on: what the ring holds
    std::size_t first_slot = 0;
  };

  void cut();
  void add_history();
  std::int32_t piece_at(StorageId storage, std::int64_t byte) const;
  Touch touch(const Region& region, std::int32_t position) const;
  std::int32_t position(std::int32_t step) const { return first_position_ + step; }
  std::int32_t tag(BufferId buffer, std::int32_t step) const { return buffer * (steps_ + 3) + step + 1; }  // step -1: before the first
  std::int32_t host_tag(BufferId buffer) const { return tag(buffer, steps_); }
  std::int64_t chunks_of(TaskId id) const;

  bool move(std::size_t sm);  // one phase; false when it cannot
  bool start(const Task& task, const Sm& sm) const;
  bool take_weights(std::size_t sm);
  void load(std::size_t sm);
  void read(TaskId id, std::int32_t step);
  void write(TaskId id, std::int32_t step);
  void finish_step(std::int32_t step);
  bool right_version(const Touch& touch, std::int32_t step) const;
  bool done(const Sm& sm, std::size_t index) const;
  void begin(const Schedule& schedule);
  bool step_over() const;
  bool all_done() const;
  std::string state_key() const;
  void broken(std::string kind, std::string what);
  std::string name(TaskId id, std::int32_t step) const;
  const Buffer& buffer(BufferId id) const { return program_.buffers[static_cast<std::size_t>(id)]; }

  const Program& program_;
  std::int32_t first_position_;
  std::uint32_t first_epoch_;
  std::int32_t steps_;
  std::vector<std::vector<std::int64_t>> borders_;  // [storage]
  std::vector<std::int32_t> first_piece_;           // [storage]
  std::vector<std::int32_t> row_of_piece_;          // KV: position of the row; else -1
  std::vector<std::vector<Instance>> instances_;    // [step][task]
  std::vector<std::int32_t> written_base_;          // [buffer]: its place in written_
  std::vector<bool> input_replaced_;                // [buffer]: the program writes it
  std::vector<std::int32_t> initial_tags_;
  std::vector<std::uint32_t> signals_;  // [counter]
  // State of a run.
  std::vector<std::int32_t> tags_;
  std::vector<std::int32_t> written_;  // [buffer, piece]: bit s when written in step s
  std::vector<std::uint32_t> counters_;
  std::vector<Sm> sms_;
  std::int32_t launched_step_ = 0;  // Launch: the step that runs
  Schedule schedule_;
  std::int32_t held_step_ = 0;  // the held task is stopped from this step on
  std::optional<Breakage> breakage_;
};

}  // namespace amk::testing
