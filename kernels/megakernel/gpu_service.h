// The worker's side of the megakernel on one GPU: answers requests by running candidates. Expected values never come here. One thread.
//   {"op":"open", "model", "gpu_ordinal", "config_dir", "max_seq", "cache"}          weights loaded and uploaded at first use
//   {"op":"check", "config", "tokens", "positions"}        two poisoned runs over all tokens -> payload: logits [positions][vocab]
//   {"op":"time", "config", "incumbent"?, "first", "tokens_per_sample", "flush"}     after a check with the same tokens
//   {"op":"decode", "config", "prompt", "count", "logits"}    greedy, token fed back on the device -> payload: logits [tokens processed][vocab] if
//   asked
//   {"op":"trace", "config", "position"}   one step with timestamps -> payload: u64 [sm][task][mark]
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kernels/device_judge.h"
#include "kernels/megakernel/gpu_model.h"

namespace amk {

class GpuService final : public DeviceService {
 public:
  explicit GpuService(bool faults = false) : faults_(faults) {}
  Result<Message> handle(const Message& request) override;

 private:
  Result<Message> open(const Json& body);
  Result<Message> check(const Json& body);
  Result<Message> time(const Json& body);
  Result<Message> decode(const Json& body);
  Result<Message> trace(const Json& body);
  Status obey_fault(const std::string& fault, const Json& config);
  Result<DeviceProgram*> program_of(const Json& config);  // the last two stay loaded

  struct Loaded {
    std::string schedule_id;
    BuiltCandidate built;
    std::unique_ptr<DeviceProgram> program;
  };
  bool faults_ = false;  // tests: {"fault": "hang" | "crash" | "exit"} in a check is obeyed
  std::string model_key_;
  std::unique_ptr<GpuModel> model_;
  std::vector<Loaded> loaded_;
  std::vector<int> tokens_;  // of the last check: what is in the sequence
};

// One step's outputs of a sequence, as they are after poisoned runs; for tests as well.
struct CheckedRun {
  std::vector<std::uint64_t> hashes;  // of the logits, per position
  std::vector<int> next_tokens;
  std::vector<float> logits;  // of the wanted positions
  std::int64_t unwritten = 0, not_finite = 0;
};
Result<CheckedRun> run_checked(GpuModel& model, DeviceProgram& program, std::span<const int> tokens, std::span<const int> positions);

}  // namespace amk
