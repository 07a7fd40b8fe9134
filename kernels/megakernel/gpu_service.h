// The worker's side of the megakernel on one GPU: answers requests by running candidates. Expected values never come here. One thread.
//   {"op":"open", "model", "gpu_ordinal", "config_dir", "max_seq", "cache"}          weights loaded and uploaded at first use
//   {"op":"check", "config", "tokens", "positions"}        two poisoned runs over all tokens -> payload: logits [positions][vocab]
//   {"op":"check", "config", "sequences": [{"tokens", "positions", "delay"}]}       a batch: sequence s begins `delay` steps late, so that positions
//   differ; also each alone, by the program of one sequence -> payload: logits [sequences][positions][vocab]
//   several steps a launch: besides, as many as two launches and one step with tokens that the device feeds back against the same as a given text
//   {"op":"check", "config", "instruction", "draws": [{"position", "seed"}]}   that kind alone, each draw twice -> payload: outputs [draws][…]
//   {"op":"time", "config", "incumbent"?, "first", "tokens_per_sample", "flush"}     after a check with the same tokens; with
//   "instruction": at the last draw's position
//   {"op":"decode", "config", "prompts", "count", "logits"}    greedy, a prompt a sequence, token fed back on the device -> payload: logits
//   [sequences][tokens processed][vocab] if asked
//   {"op":"trace", "config", "position"}   one step with timestamps -> payload: u64 [sm][task][mark]
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "kernels/device_judge.h"
#include "kernels/megakernel/gpu_instruction.h"
#include "kernels/megakernel/gpu_model.h"
#include "kernels/megakernel/gpu_timing.h"

namespace amk {

// One sequence of a batch in a check.
struct SequenceRun {
  std::vector<int> tokens;
  std::vector<int> positions;  // ascending, whose logits are kept
  int delay = 0;               // steps
};

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
  Result<Message> check_instruction(const Json& body);
  Result<Message> check_batch(const Json& body);
  Status check_fed_back(DeviceProgram& program, int first_token, Json& body);
  Status compare_alone(const Json& config, const std::vector<std::uint64_t>& seen, Json& body);
  Result<Message> time_instruction(const Json& body);
  Result<DeviceProgram*> program_of(const Json& config, const std::string& instruction = {});  // the last two stay loaded
  // Both programs of a "time" request.
  Result<std::pair<DeviceProgram*, DeviceProgram*>> contestants_of(const Json& body);
  Message time_reply(const ProgramTiming& timing, const DeviceProgram* candidate, const DeviceProgram* incumbent, std::uint64_t hash) const;
  // What a check says of the GPU's state and of the program, besides its outputs.
  Status add_state(const DeviceProgram& program, Json& body);

  struct Loaded {
    std::string schedule_id, instruction;
    BuiltCandidate built;
    std::unique_ptr<DeviceProgram> program;
  };
  bool faults_ = false;  // tests: {"fault": "hang" | "crash" | "exit"} in a check is obeyed
  std::string model_key_;
  std::unique_ptr<GpuModel> model_;
  std::vector<Loaded> loaded_;
  std::vector<int> tokens_;             // of the last check: what is in the (first) sequence
  std::vector<SequenceRun> sequences_;  // of the last check of a batch
  std::vector<InstructionDraw> draws_;  // of the last check of an instruction
};

// One step's outputs of a sequence, as they are after poisoned runs; for tests as well.
struct CheckedRun {
  std::vector<std::uint64_t> hashes;  // of the logits, per position
  std::vector<int> next_tokens;
  std::vector<float> logits;  // of the wanted positions
  std::int64_t unwritten = 0, not_finite = 0;
};
// A program of one sequence, on any sequence of the model.
Result<CheckedRun> run_checked(GpuModel& model, DeviceProgram& program, std::span<const int> tokens, std::span<const int> positions, int seq = 0);

// Positions [0, count) from one token a sequence (first_token + s), each further one the argmax of the step before, which the device feeds back.
struct FedBack {
  std::vector<std::vector<int>> tokens;            // [sequence][position]
  std::vector<std::vector<std::uint64_t>> hashes;  // of the logits, likewise
  bool followed = true;                            // every token is the argmax that the step before gave
};
Result<FedBack> run_fed_back(GpuModel& model, DeviceProgram& program, int first_token, int count);

// A batch: every sequence has its tokens and starts when `delay` steps have passed; until then it repeats its first position, and behind its end its
// last. `steady`: whatever the others did meanwhile, the repetitions gave the same bits.
struct BatchRun {
  std::vector<CheckedRun> sequences;
  bool steady = true;
};
Result<BatchRun> run_checked_batch(GpuModel& model, DeviceProgram& program, std::span<const SequenceRun> sequences);

}  // namespace amk
