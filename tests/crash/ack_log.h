// What the store acknowledged, in memory that outlives the process that was told so.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace amk::test {

enum class Ack : int { Begun, Ended, Claimed, Recorded, Job, Queued };

struct AckEntry {
  Ack kind = Ack::Begun;
  std::int64_t campaign = 0, experiment = 0;
  int outcome = -1;        // Ended
  double latency_us = -1;  // Ended, with a pass
  char key[48] = {};       // idempotency key, or job id
};

// Shared between a parent and its forked children. append() is called by the child's threads, taken() by the parent when the child is gone.
class AckLog {
 public:
  explicit AckLog(std::size_t capacity);
  ~AckLog();
  AckLog(const AckLog&) = delete;
  AckLog& operator=(const AckLog&) = delete;

  void append(const AckEntry& entry);
  std::vector<AckEntry> taken() const;
  void clear();

 private:
  struct Slot {
    std::atomic<bool> complete;  // an entry that its writer died in was never acknowledged to anybody
    AckEntry entry;
  };
  struct Shared {
    std::atomic<std::size_t> used;
  };
  std::size_t bytes() const { return sizeof(Shared) + capacity_ * sizeof(Slot); }
  Slot* slots() const { return reinterpret_cast<Slot*>(shared_ + 1); }

  std::size_t capacity_;
  Shared* shared_;
};

}  // namespace amk::test
