// The worker's side of the megakernel on one GPU: answers requests by running candidates. Expected values never come here. One thread.
//   {"op":"open", "model", "gpu_ordinal", "config_dir", "max_seq", "cache"}          weights loaded and uploaded at first use
//   {"op":"check", "config", "tokens", "positions"}        two poisoned runs over all tokens -> payload: logits [positions][vocab]
//   {"op":"check", "config", "sequences": [{"tokens", "positions", "delay"}]}       a batch: sequence s begins `delay` steps late, so that positions
//   differ; also each alone, by the program of one sequence -> payload: logits [sequences][positions][vocab]
//   "patience_us"?: when each of the first launches takes longer a step, the reply is {"gave_up_us", …} and no logits
//   {"op":"pace", "config", "incumbent"}                   after such a reply: both in turn, a launch a sample (pace.h)
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
#include "kernels/megakernel/checked_run.h"
#include "kernels/megakernel/gpu_instruction.h"
#include "kernels/megakernel/gpu_model.h"
#include "kernels/megakernel/gpu_timing.h"

namespace amk {

class GpuService final : public DeviceService {
 public:
  explicit GpuService(bool faults = false) : faults_(faults) {}
  Result<Message> handle(const Message& request) override;

 private:
  Result<Message> open(const Json& body);
  Result<Message> check(const Json& body);
  Result<Message> pace(const Json& body);
  Result<Message> time(const Json& body);
  Result<Message> decode(const Json& body);
  Result<Message> trace(const Json& body);
  Status obey_fault(const std::string& fault, const Json& config);
  Result<Message> check_instruction(const Json& body);
  Result<Message> check_batch(const Json& body);
  Result<Message> gave_up(const DeviceProgram& program, const Patience& patience);
  Status check_fed_back(DeviceProgram& program, int first_token, Json& body);
  Status compare_alone(const Json& config, const std::vector<std::uint64_t>& seen, Json& body);
  Result<Message> time_instruction(const Json& body);
  Result<DeviceProgram> load(const BuiltCandidate& built);
  Result<DeviceProgram*> program_of(const Json& config, const std::string& instruction = {});  // the last two stay loaded
  // Both programs of a "time" request.
  Result<std::pair<DeviceProgram*, DeviceProgram*>> contestants_of(const Json& body);
  void name_programs(Json& body, const DeviceProgram* candidate, const DeviceProgram* incumbent) const;
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

}  // namespace amk
