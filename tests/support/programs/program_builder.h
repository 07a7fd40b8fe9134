// Small programs by hand, for tests. Fills in what follows from the rest: queue positions, fan-ins, wait targets, weight streams.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/program/program.h"

namespace amk::testing {

inline Region whole(BufferId buffer, const Program& program) {
  return {buffer, 0, program.buffers[static_cast<std::size_t>(buffer)].bytes, 0, 0, kAllPositions};
}

class ProgramBuilder {
 public:
  ProgramBuilder(int sms, int max_seq);

  // A storage of its own, of that many fp32 elements, unless one is given.
  BufferId buffer(std::string name, Space space, std::int64_t elements, StorageId storage = kNone, std::int64_t offset = 0);
  BufferId kv(std::string name, std::int64_t heads, std::int64_t head_dim);  // [heads, max_seq, head_dim] fp32
  StorageId storage(std::string name, std::int64_t bytes, Space space = Space::Activation);
  BufferId weight(std::string name, Matrix matrix, std::int64_t rows, std::int64_t cols);
  CounterId counter(std::string name);
  InstructionId instruction(std::string name);

  Region all(BufferId buffer) const { return whole(buffer, program); }
  Region part(BufferId buffer, std::int64_t first, std::int64_t count, int pos_lo = 0, int pos_hi = kAllPositions) const;  // elements
  Region row(BufferId kv, std::int64_t head, std::int64_t first, std::int64_t count) const;  // of the launch position's row
  Region head(BufferId kv, std::int64_t head) const;                                         // every position

  struct Parts {
    std::vector<Region> reads = {};
    std::vector<Region> writes = {};
    std::vector<CounterId> waits = {};
    CounterId signal = kNone;
    Opcode op = Opcode::RmsNorm;
    InstructionId instruction = 0;
    std::uint32_t fused = 0;
    bool ring = false;  // its packed weights come through the ring
    int pos_lo = 0;
    int pos_hi = kAllPositions;
  };
  TaskId task(int sm, Parts parts);  // appended to the SM's queue
  Program finish() const;            // fan-ins, targets, streams

  Program program;
};

// A decoder-shaped program of any size, with what makes lowered programs hard: rows split over SMs, pages shared between layers, split attention with
// guards, KV appends, ring streams. Persistent: the argmax writes the token that the next step embeds.
struct SyntheticShape {
  int sms = 4;
  int layers = 2;
  int rows = 64;  // of every vector; split over the SMs in units of 4
  int kv_heads = 2;
  int splits = 2;  // of attention: split s is active from position 4·s
  int max_seq = 12;
  bool shared_pages = true;
  bool ring = true;
  StepSync step_sync = StepSync::Launch;
};
Program synthetic_decoder(const SyntheticShape& shape);

}  // namespace amk::testing
