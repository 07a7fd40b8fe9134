#include "core/reference/reference_vm.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "core/reference/forward.h"
#include "core/reference/reference_vm_memory.h"
#include "core/reference/reference_vm_ops.h"
#include "core/reference/reference_vm_queues.h"

namespace amk {

struct ReferenceVm::State {
  Program program;
  std::shared_ptr<const Weights> weights;
  VmOptions options;
  vm::Memory memory;
  vm::WeightBuffers weight_buffers;
  std::vector<std::vector<vm::BoundTask>> tasks;  // [task][sequence that it touches]
  vm::Queues queues;
  vm::Scratch scratch;
  std::byte* token = nullptr;
  std::byte* logits = nullptr;
  std::byte* next_token = nullptr;
  std::vector<float*> rope_tables;
  Rng rng;
  std::int64_t epoch = 0;
  std::vector<int> positions;  // [sequence]
  // Of a launch of several steps.
  std::span<const int> given;  // [step][sequence], or [sequence]
  std::vector<float> launch_logits;
  std::vector<std::int32_t> launch_tokens;  // [step][sequence]

  State(const Program& p, std::shared_ptr<const Weights> w, const VmOptions& o, vm::Memory m, vm::WeightBuffers b)
      : program(p),
        weights(std::move(w)),
        options(o),
        memory(std::move(m)),
        weight_buffers(std::move(b)),
        queues(program),
        rng(o.interleaving_seed),
        positions(static_cast<std::size_t>(program.batch), 0) {}

  Status bind();
  void begin_launch(int steps);
  Status run_launch(int steps);
  void keep_outputs(int step, int seq);
  bool whole_step() const { return logits != nullptr && next_token != nullptr; }
  std::size_t batch() const { return static_cast<std::size_t>(program.batch); }
  std::size_t vocab() const { return static_cast<std::size_t>(program.model.vocab); }
};

namespace {

Result<std::byte*> fixed_buffer(const Program& program, vm::Memory& memory, const char* name, DType dtype, std::int64_t elements) {
  const BufferId id = program.find_buffer(name);
  if (id == kNone) return nullptr;  // part of a step: whoever needs it says so
  if (program.buffers[id].dtype != dtype || program.buffers[id].bytes != elements * dtype_bytes(dtype) || program.buffers[id].space == Space::Weight)
    return fail(
        ErrorKind::InvalidArgument,
        std::string("the program has no buffer ") + name + " of " + std::to_string(elements) + " " + std::string(to_string(dtype)) + " elements",
        {{"field", name}});
  return memory.address(program, id);
}

}  // namespace

Status ReferenceVm::State::bind() {
  const ModelSpec& spec = program.model;
  AMK_TRY(token_at, fixed_buffer(program, memory, "token", DType::I32, program.batch));
  AMK_TRY(logits_at, fixed_buffer(program, memory, "logits", DType::F32, std::int64_t{program.batch} * spec.vocab));
  AMK_TRY(next_at, fixed_buffer(program, memory, "next_token", DType::I32, program.batch));
  token = token_at;
  logits = logits_at;
  next_token = next_at;
  if (program.step_sync == StepSync::Persistent && next_token == nullptr) next_token = token;
  for (BufferId id = 0; id < static_cast<BufferId>(program.buffers.size()); ++id) {
    const Buffer& buffer = program.buffers[id];
    if (buffer.space != Space::Const) continue;
    if (buffer.dtype != DType::F32 || buffer.bytes != std::int64_t{program.max_seq} * spec.head_dim * dtype_bytes(DType::F32))
      return fail(ErrorKind::InvalidArgument, "constant buffer " + buffer.name + " is no RoPE table", {{"field", buffer.name}});
    rope_tables.push_back(reinterpret_cast<float*>(memory.address(program, id)));
  }
  tasks.reserve(program.tasks.size());
  for (TaskId id = 0; id < static_cast<TaskId>(program.tasks.size()); ++id) {
    AMK_TRY(bound, vm::bind_task(program, id, memory, weight_buffers));
    tasks.push_back(std::move(bound));
  }
  memory.poison_kv();
  return {};
}

void ReferenceVm::State::begin_launch(int steps) {
  if (options.poison) memory.poison_step();
  const std::size_t half = static_cast<std::size_t>(program.model.head_dim) / 2;
  for (float* table : rope_tables)
    for (const int first : positions)
      for (int position = first; position < first + steps; ++position) {
        float* row = table + static_cast<std::size_t>(position) * 2 * half;
        rope_cos_sin(program.model, position, {row, half}, {row + half, half});
      }
}

// What the host will see of a step: taken at its end, or where another follows at its argmax, the last task of its sequence; the next step's token
// may then be replaced.
void ReferenceVm::State::keep_outputs(int step, int seq) {
  const std::size_t at = static_cast<std::size_t>(step) * batch() + static_cast<std::size_t>(seq);
  std::memcpy(launch_logits.data() + at * vocab(), reinterpret_cast<const float*>(logits) + static_cast<std::size_t>(seq) * vocab(), vocab() * 4);
  std::memcpy(&launch_tokens[at], next_token + static_cast<std::size_t>(seq) * 4, 4);
  if (at + batch() < given.size()) std::memcpy(token + static_cast<std::size_t>(seq) * 4, &given[at + batch()], 4);
}

Status ReferenceVm::State::run_launch(int steps) {
  for (const int position : positions)
    if (position + steps > program.max_seq) return bad_field("position", position + steps - 1, "below max_seq, " + std::to_string(program.max_seq));
  if (epoch > program.max_steps - steps)
    return fail(ErrorKind::InvalidArgument, "the program's counters are proved for " + std::to_string(program.max_steps) + " steps only",
                {{"field", "max_steps"}, {"value", epoch}});
  begin_launch(steps);
  launch_logits.assign(logits == nullptr ? 0 : static_cast<std::size_t>(steps) * batch() * vocab(), 0.0f);
  launch_tokens.assign(static_cast<std::size_t>(steps) * batch(), -1);
  // Where all tasks of a step are done before one of the next has run, what the step left is poisoned as between launches.
  std::size_t executed = 0;
  int started = 0;  // steps
  const auto execute = [&](TaskId id, int step) -> Status {
    for (const vm::BoundTask& bound : tasks[id]) {
      AMK_CHECK(vm::execute({program, weight_buffers, positions[static_cast<std::size_t>(bound.seq)] + step, scratch}, bound));
      if (bound.task->op == Opcode::Argmax && step + 1 < steps && whole_step()) keep_outputs(step, bound.seq);
    }
    started = std::max(started, step + 1);
    if (++executed == program.tasks.size() * static_cast<std::size_t>(started) && started < steps && options.poison) memory.poison_step();
    return {};
  };
  AMK_CHECK(queues.run(epoch, steps, rng, execute));
  for (int seq = 0; whole_step() && seq < program.batch; ++seq) keep_outputs(steps - 1, seq);
  epoch += steps;
  for (int& position : positions) position += steps;
  return {};
}

Result<ReferenceVm> ReferenceVm::create(const Program& program, std::shared_ptr<const Weights> weights, const VmOptions& options) {
  if (weights == nullptr) return fail(ErrorKind::InvalidArgument, "no weights", {{"field", "weights"}});
  if (to_json(weights->spec()) != to_json(program.model))
    return fail(ErrorKind::InvalidArgument, "the weights are not of the model that the program was lowered for", {{"field", "weights"}});
  if (program.max_seq < 1) return bad_field("max_seq", program.max_seq, "at least 1");
  AMK_CHECK(vm::check_queues(program));
  AMK_TRY(memory, vm::Memory::create(program));
  AMK_TRY(buffers, vm::WeightBuffers::create(program, *weights));
  auto state = std::make_unique<State>(program, std::move(weights), options, std::move(memory), std::move(buffers));
  AMK_CHECK(state->bind());
  return ReferenceVm(std::move(state));
}

ReferenceVm::ReferenceVm(std::unique_ptr<State> state) : state_(std::move(state)) {}
ReferenceVm::~ReferenceVm() = default;
ReferenceVm::ReferenceVm(ReferenceVm&&) noexcept = default;
ReferenceVm& ReferenceVm::operator=(ReferenceVm&&) noexcept = default;

Result<ReferenceVm::Step> ReferenceVm::step(int token) {
  AMK_TRY(steps, step(std::span<const int>(&token, 1)));
  return steps.front();
}

Result<std::vector<ReferenceVm::Step>> ReferenceVm::step(std::span<const int> tokens) {
  if (tokens.size() != state_->batch())
    return bad_field("tokens", tokens.size(), "one for each of " + std::to_string(state_->batch()) + " sequences");
  return launch(tokens, 1);
}

Result<std::vector<ReferenceVm::Step>> ReferenceVm::launch(std::span<const int> tokens, int steps) {
  State& s = *state_;
  const std::size_t batch = s.batch();
  if (steps < 1 || (steps > 1 && s.program.step_sync != StepSync::Persistent))
    return bad_field("steps", steps, s.program.step_sync == StepSync::Persistent ? "at least 1" : "1: the program is proved for one step a launch");
  if (tokens.size() != batch && tokens.size() != batch * static_cast<std::size_t>(steps))
    return bad_field("tokens", tokens.size(), "one for each of " + std::to_string(batch) + " sequences, or that for every step");
  for (const int token : tokens)
    if (token < 0 || token >= s.program.model.vocab) return bad_field("token", token, "0 to " + std::to_string(s.program.model.vocab - 1));
  if (s.token == nullptr || s.logits == nullptr || s.next_token == nullptr)
    return fail(ErrorKind::InvalidArgument, "the program is part of a step: it takes no token and gives no logits", {{"field", "program"}});
  static_assert(sizeof(int) == 4);
  std::memcpy(s.token, tokens.data(), batch * 4);
  s.given = tokens;
  const Status ran = s.run_launch(steps);
  s.given = {};
  AMK_CHECK(ran);
  std::vector<Step> out;
  for (std::size_t i = 0; i < batch * static_cast<std::size_t>(steps); ++i)
    out.push_back({{s.launch_logits.data() + i * s.vocab(), s.vocab()}, s.launch_tokens[i]});
  return out;
}

Status ReferenceVm::run(int position) {
  if (position < 0 || position >= state_->program.max_seq)
    return bad_field("position", position, "0 to " + std::to_string(state_->program.max_seq - 1));
  std::fill(state_->positions.begin(), state_->positions.end(), position);
  return state_->run_launch(1);
}

Status ReferenceVm::set(std::string_view name, std::int64_t first, std::span<const float> values) {
  State& s = *state_;
  const BufferId id = s.program.find_buffer(name);
  if (id == kNone || s.program.buffers[id].space != Space::Input || s.program.buffers[id].dtype == DType::I32)
    return bad_field("buffer", std::string(name), "a vector or cache among the program's inputs");
  const Buffer& buffer = s.program.buffers[id];
  const std::int64_t size = dtype_bytes(buffer.dtype), count = static_cast<std::int64_t>(values.size());
  if (first < 0 || first > buffer.bytes / size || count > buffer.bytes / size - first)
    return bad_field("first", first, "elements within the " + std::to_string(buffer.bytes / size) + " of " + buffer.name);
  vm::store_f32(s.memory.address(s.program, id) + first * size, buffer.dtype, values);
  return {};
}

Result<std::vector<float>> ReferenceVm::get(std::string_view name, std::int64_t first, std::int64_t count) const {
  State& s = *state_;
  const BufferId id = s.program.find_buffer(name);
  if (id == kNone || s.program.buffers[id].space == Space::Weight || s.program.buffers[id].dtype == DType::I32)
    return bad_field("buffer", std::string(name), "a vector, cache or output of the program");
  const Buffer& buffer = s.program.buffers[id];
  const std::int64_t size = dtype_bytes(buffer.dtype);
  if (first < 0 || count < 0 || first > buffer.bytes / size || count > buffer.bytes / size - first)
    return bad_field("first", first, "elements within the " + std::to_string(buffer.bytes / size) + " of " + buffer.name);
  std::vector<float> scratch;
  const auto values = vm::load_f32(s.memory.address(s.program, id) + first * size, buffer.dtype, count, scratch);
  return std::vector<float>(values.begin(), values.end());
}

int ReferenceVm::position(int seq) const { return state_->positions.at(static_cast<std::size_t>(seq)); }

Status ReferenceVm::seed_kv(int position, int source_max_seq, const LayerCache& keys, const LayerCache& values, int seq) {
  State& s = *state_;
  const ModelSpec& spec = s.program.model;
  if (seq < 0 || seq >= s.program.batch) return bad_field("seq", seq, "0 to " + std::to_string(s.program.batch - 1));
  if (position < 0 || position > s.program.max_seq || position > source_max_seq)
    return bad_field("position", position, "0 to " + std::to_string(std::min(s.program.max_seq, source_max_seq)));
  s.memory.poison_kv(s.program, seq);
  const std::size_t hd = static_cast<std::size_t>(spec.head_dim);
  for (const auto& parts : s.tasks) {
    // One task a head is enough: all of a head share its K and V.
    const Opcode op = parts.front().task->op;
    const vm::BoundTask& bound = op == Opcode::AttentionO ? parts.at(static_cast<std::size_t>(seq)) : parts.front();
    if ((op != Opcode::AttentionTile || bound.task->split != 0) && (op != Opcode::AttentionO || bound.task->row_begin != 0)) continue;
    if (bound.seq != seq) continue;
    for (std::size_t cache = 0; cache < 2; ++cache) {
      const auto source = (cache == 0 ? keys : values)(bound.task->layer);
      const std::size_t head = static_cast<std::size_t>(bound.task->head) * static_cast<std::size_t>(source_max_seq) * hd;
      const std::size_t count = static_cast<std::size_t>(position) * hd;
      if (source.size() < head + count) return bad_field("source_max_seq", source_max_seq, "what the layer's cache holds");
      vm::store_f32(bound.inputs[1 + cache].data, bound.inputs[1 + cache].dtype, source.subspan(head, count));
    }
  }
  s.positions[static_cast<std::size_t>(seq)] = position;
  return {};
}

void ReferenceVm::reset() {
  std::fill(state_->positions.begin(), state_->positions.end(), 0);
  state_->memory.poison_kv();
}

Status dry_run(const Program& program, std::uint64_t interleaving_seed) {
  if (program.max_seq < 1) return bad_field("max_seq", program.max_seq, "at least 1");
  AMK_CHECK(vm::check_queues(program));
  AMK_TRY(memory, vm::Memory::create(program, false));
  AMK_TRY(weights, vm::WeightBuffers::shapes(program));
  for (TaskId id = 0; id < static_cast<TaskId>(program.tasks.size()); ++id) AMK_CHECK(vm::bind_task(program, id, memory, weights));
  vm::Queues queues(program);
  Rng rng(interleaving_seed);
  const auto nothing = [](TaskId, int) { return Status{}; };
  if (program.step_sync == StepSync::Persistent) return queues.run(0, 2, rng, nothing);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) AMK_CHECK(queues.run(epoch, 1, rng, nothing));
  return {};
}

}  // namespace amk
