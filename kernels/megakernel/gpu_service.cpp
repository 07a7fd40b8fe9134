#include "kernels/megakernel/gpu_service.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>

#include "core/base/json.h"
#include "core/model/load.h"
#include "kernels/evaluator/clock.h"
#include "kernels/evaluator/nvml.h"
#include "kernels/megakernel/gpu_timing.h"
#include "kernels/timed_verdict.h"

namespace amk {
namespace {

// Of all sequences together, in their order.
std::uint64_t joined(std::span<const std::uint64_t> hashes) {
  std::uint64_t all = 0;
  for (const std::uint64_t h : hashes) all = all * 0x9E3779B97F4A7C15ull + h;
  return all;
}

std::string payload_of(std::span<const float> logits) { return {reinterpret_cast<const char*>(logits.data()), logits.size_bytes()}; }

Json program_facts(const DeviceProgram& program, const BuiltCandidate& built) {
  return {{"registers", program.registers()},        {"local_bytes", program.local_bytes()}, {"smem_bytes", program.plan().shared_bytes},
          {"tasks", program.program().tasks.size()}, {"build_ms", built.build_ms},           {"cached", built.cached}};
}

}  // namespace

Result<Message> GpuService::handle(const Message& request) try {
  const Json& body = request.body;
  const std::string op = body.value("op", "");
  if (op == "open") return open(body);
  if (model_ == nullptr) return fail(ErrorKind::InvalidArgument, "no model is open in this worker");
  if (op == "check") return check(body);
  if (op == "pace") return pace(body);
  if (op == "time") return time(body);
  if (op == "decode") return decode(body);
  if (op == "trace") return trace(body);
  return bad_field("op", op, "open, check, pace, time, decode, trace");
} catch (const Json::exception& e) {
  return fail(ErrorKind::InvalidArgument, std::string("a worker request is malformed: ") + e.what());
}

Result<Message> GpuService::open(const Json& body) {
  const std::string key = body.dump();
  if (model_ == nullptr || key != model_key_) {
    loaded_.clear();
    model_.reset();
    AMK_TRY(ref, resolve_model(body.at("model").get<std::string>(), ModelSources::from_environment(body.at("config_dir").get<std::string>())));
    AMK_TRY(gpus, gpu_devices());
    const auto ordinal = body.at("gpu_ordinal").get<std::size_t>();
    if (ordinal >= gpus.size()) return fail(ErrorKind::Unavailable, "there is no GPU " + std::to_string(ordinal));
    AMK_TRY(weights, load_weights(ref));
    AMK_TRY(model, GpuModel::open(gpus[ordinal], weights, body.at("max_seq").get<int>(), body.at("cache").get<std::string>(), ref.batch));
    model_ = std::move(model);
    model_key_ = key;
  }
  Message reply;
  reply.body = {{"uuid", model_->device().uuid}, {"product", model_->device().product}};
  return reply;
}

Result<DeviceProgram*> GpuService::program_of(const Json& config, const std::string& instruction) {
  AMK_TRY(parsed, parse_schedule_config(config));
  const std::string id = schedule_id(parsed);
  const auto held =
      std::find_if(loaded_.begin(), loaded_.end(), [&](const Loaded& l) { return l.schedule_id == id && l.instruction == instruction; });
  if (held != loaded_.end()) {
    std::rotate(held, held + 1, loaded_.end());  // the one used last goes last: an incumbent stays while candidates come and go
    return loaded_.back().program.get();
  }
  PlanOptions options;
  options.instruction = instruction;
  AMK_TRY(built, model_->build(parsed, options));
  AMK_TRY(program, load(built));
  if (loaded_.size() >= 2) loaded_.erase(loaded_.begin());
  loaded_.push_back({id, instruction, std::move(built), std::make_unique<DeviceProgram>(std::move(program))});
  return loaded_.back().program.get();
}

// When memory is short, weights in a layout that no program here reads make room.
Result<DeviceProgram> GpuService::load(const BuiltCandidate& built) {
  auto program = model_->load(built);
  if (program || program.error().kind != ErrorKind::Unavailable) return program;
  std::set<WeightLayout> read = {built.plan.layout};
  if (!loaded_.empty()) read.insert(loaded_.back().built.plan.layout);  // an incumbent; the one before it goes now
  if (loaded_.size() >= 2) loaded_.erase(loaded_.begin());
  model_->drop_layouts_but(read);
  return model_->load(built);
}

// A hang: the first task of SM 0 never signals, so that its launch runs out of its budget.
Status GpuService::obey_fault(const std::string& fault, const Json& config) {
  if (fault == "crash") std::abort();
  if (fault == "exit") std::_Exit(9);
  if (fault != "hang") return {};
  AMK_TRY(parsed, parse_schedule_config(config));
  PlanOptions options;
  options.fault_hang = true;
  AMK_TRY(built, model_->build(parsed, options));
  AMK_TRY(program, model_->load(built));
  program.set_budget_us(100'000);
  return model_->run(program, {0, false});
}

Result<Message> GpuService::check(const Json& body) {
  if (body.contains("instruction")) return check_instruction(body);
  if (body.contains("sequences")) return check_batch(body);
  const auto tokens = body.at("tokens").get<std::vector<int>>();
  const auto positions = body.at("positions").get<std::vector<int>>();
  AMK_TRY(program, program_of(body.at("config")));
  if (faults_) AMK_CHECK(obey_fault(body.value("fault", ""), body.at("config")));
  Patience patience(body.value("patience_us", 0.0));
  tokens_ = tokens;
  AMK_TRY(first, run_checked(*model_, *program, tokens, positions, 0, &patience));
  if (patience.lost()) return gave_up(*program, patience);
  AMK_TRY(second, run_checked(*model_, *program, tokens, {}));
  AMK_TRY(after, model_->sequence().read_tokens(0, static_cast<int>(tokens.size()), model_->stream()));
  std::vector<int> next;
  for (const int p : positions) next.push_back(first.next_tokens.at(static_cast<std::size_t>(p)));
  Message reply;
  reply.body = {{"next_tokens", next},
                {"repeatable", first.hashes == second.hashes},
                {"last_hash", first.hashes.back()},
                {"unwritten", first.unwritten + second.unwritten},
                {"not_finite", first.not_finite},
                {"inputs_unchanged", after == tokens}};
  AMK_CHECK(add_state(*program, reply.body));
  AMK_CHECK(check_fed_back(*program, tokens.front(), reply.body));
  AMK_CHECK(model_->sequence().set_tokens(tokens_, 0, model_->stream()));  // what is timed next
  reply.payload = payload_of(first.logits);
  return reply;
}

// Perhaps too slow to be worth a check: nothing is said of its outputs.
Result<Message> GpuService::gave_up(const DeviceProgram& program, const Patience& patience) {
  Message reply;
  reply.body = {{"gave_up_us", patience.fastest_us()}};
  AMK_CHECK(add_state(program, reply.body));
  return reply;
}

// Several steps a launch: tokens that the device fed back itself, and the same as a given text, must have the same bits; and the text must be what
// the argmaxes said.
Status GpuService::check_fed_back(DeviceProgram& program, int first_token, Json& body) {
  const int steps = program.plan().steps;
  if (steps == 1) return {};
  const int most = model_->sequence().max_seq(), count = std::min(most, 2 * steps + 1);
  const int room = model_->spec().vocab - program.program().batch;
  AMK_TRY(free, run_fed_back(*model_, program, std::clamp(first_token, 0, std::max(0, room)), count));
  bool same = free.followed;
  if (program.program().batch == 1) {
    AMK_TRY(told, run_checked(*model_, program, free.tokens[0], {}));
    same = same && told.hashes == free.hashes[0];
  } else {
    std::vector<SequenceRun> sequences;
    for (std::vector<int>& tokens : free.tokens) sequences.push_back({std::move(tokens), {}, 0});
    AMK_TRY(told, run_checked_batch(*model_, program, sequences));
    for (std::size_t s = 0; s < sequences.size(); ++s) same = same && told.sequences[s].hashes == free.hashes[s];
  }
  body["fed_back"] = count;
  body["fed_back_equal"] = same;
  return {};
}

Result<Message> GpuService::check_batch(const Json& body) {
  sequences_.clear();
  for (const Json& s : body.at("sequences"))
    sequences_.push_back({s.at("tokens").get<std::vector<int>>(), s.at("positions").get<std::vector<int>>(), s.at("delay").get<int>()});
  if (sequences_.size() != static_cast<std::size_t>(model_->sequence().batch()))
    return bad_field("sequences", sequences_.size(), std::to_string(model_->sequence().batch()) + ", as the model was opened for");
  for (const SequenceRun& s : sequences_)
    if (s.tokens.size() != sequences_[0].tokens.size() || s.tokens.empty() || s.delay < 0)
      return bad_field("sequences", s.tokens.size(), "equally many tokens for each, and no negative delay");
  AMK_TRY(program, program_of(body.at("config")));
  if (faults_) AMK_CHECK(obey_fault(body.value("fault", ""), body.at("config")));
  Patience patience(body.value("patience_us", 0.0));
  tokens_ = sequences_[0].tokens;
  AMK_TRY(first, run_checked_batch(*model_, *program, sequences_, &patience));
  if (patience.lost()) return gave_up(*program, patience);
  AMK_TRY(second, run_checked_batch(*model_, *program, sequences_));
  Message reply;
  std::vector<int> next;
  std::vector<std::uint64_t> last, seen;
  std::int64_t unwritten = 0, not_finite = 0;
  bool repeatable = first.steady && second.steady, unchanged = true;
  for (std::size_t s = 0; s < sequences_.size(); ++s) {
    const CheckedRun& run = first.sequences[s];
    for (const int p : sequences_[s].positions) next.push_back(run.next_tokens.at(static_cast<std::size_t>(p)));
    repeatable = repeatable && run.hashes == second.sequences[s].hashes;
    unwritten += run.unwritten + second.sequences[s].unwritten;
    not_finite += run.not_finite;
    last.push_back(run.hashes.back());
    seen.insert(seen.end(), run.hashes.begin(), run.hashes.end());
    AMK_TRY(after, model_->sequence().read_tokens(0, static_cast<int>(sequences_[s].tokens.size()), model_->stream(), static_cast<int>(s)));
    unchanged = unchanged && after == sequences_[s].tokens;
    reply.payload += payload_of(run.logits);
  }
  reply.body = {{"next_tokens", next},    {"repeatable", repeatable}, {"last_hash", joined(last)},
                {"unwritten", unwritten}, {"not_finite", not_finite}, {"inputs_unchanged", unchanged}};
  AMK_CHECK(add_state(*program, reply.body));
  AMK_CHECK(check_fed_back(*program, tokens_.front(), reply.body));
  AMK_CHECK(compare_alone(body.at("config"), seen, reply.body));
  return reply;
}

// Each sequence by itself, by the same config's program of one sequence: "alone" is how many positions were compared, "alone_equal" whether every one
// gave the same bits.
Status GpuService::compare_alone(const Json& config, const std::vector<std::uint64_t>& seen, Json& body) {
  AMK_TRY(parsed, parse_schedule_config(config));
  PlanOptions options;
  options.batch = 1;
  AMK_TRY(built, model_->build(parsed, options));
  AMK_TRY(program, model_->load(built));
  std::vector<std::uint64_t> alone;
  for (std::size_t s = 0; s < sequences_.size(); ++s) {
    AMK_TRY(run, run_checked(*model_, program, sequences_[s].tokens, {}, static_cast<int>(s)));
    alone.insert(alone.end(), run.hashes.begin(), run.hashes.end());
  }
  body["alone"] = alone.size();
  body["alone_equal"] = alone == seen;
  return {};
}

Status GpuService::add_state(const DeviceProgram& program, Json& body) {
  AMK_TRY(guards, model_->sequence().damaged_guards(model_->stream()));
  AMK_TRY(activation_guards, program.damaged_guards(model_->stream()));
  AMK_TRY(layout, model_->layout_weights(program.plan().layout));
  AMK_TRY(intact, layout->intact(model_->stream()));
  // What one candidate damaged must not be held against the next: its model is loaded anew.
  if (guards != 0 || !intact) model_key_.clear();
  body["damaged_guards"] = guards + activation_guards;
  body["inputs_unchanged"] = body.value("inputs_unchanged", false) && intact;
  for (const Loaded& l : loaded_) {
    if (l.program.get() != &program) continue;
    body["schedule_id"] = l.schedule_id;
    body["program"] = program_facts(program, l.built);
  }
  return {};
}

Result<std::pair<DeviceProgram*, DeviceProgram*>> GpuService::contestants_of(const Json& body) {
  const std::string instruction = body.value("instruction", "");
  AMK_TRY(candidate, program_of(body.at("config"), instruction));
  DeviceProgram* incumbent = nullptr;
  if (const auto other = body.find("incumbent"); other != body.end() && !other->is_null()) {
    AMK_TRY(found, program_of(*other, instruction));
    AMK_TRY(again, program_of(body.at("config"), instruction));  // loading the incumbent may have pushed it out
    candidate = again;
    if (found != again) incumbent = found;
  }
  return std::pair{candidate, incumbent};
}

// Which program's samples are which is said by the programs that ran.
void GpuService::name_programs(Json& body, const DeviceProgram* candidate, const DeviceProgram* incumbent) const {
  const auto id_of = [this](const DeviceProgram* program) -> Json {
    for (const Loaded& l : loaded_)
      if (l.program.get() == program) return l.schedule_id;
    return nullptr;
  };
  body["schedule_id"] = id_of(candidate);
  body["incumbent_id"] = id_of(incumbent);
}

Message GpuService::time_reply(const ProgramTiming& timing, const DeviceProgram* candidate, const DeviceProgram* incumbent,
                               std::uint64_t hash) const {
  Message reply;
  reply.body = timed_reply(timing.timing, timing.wall_ratio, timing.other_processes);
  name_programs(reply.body, candidate, incumbent);
  reply.body["last_hash"] = hash;
  return reply;
}

Result<Message> GpuService::pace(const Json& body) {
  AMK_TRY(programs, contestants_of(body));
  if (programs.second == nullptr) return bad_field("incumbent", body.value("incumbent", Json(nullptr)), "another config than the candidate's");
  if (tokens_.empty()) return fail(ErrorKind::InvalidArgument, "a candidate's pace is taken after its check");
  AMK_TRY(pace, pace_programs(*model_, *programs.first, *programs.second, static_cast<int>(tokens_.size())));
  Message reply;
  reply.body = to_json(pace);
  name_programs(reply.body, programs.first, programs.second);
  return reply;
}

Result<Message> GpuService::time(const Json& body) {
  if (body.contains("instruction")) return time_instruction(body);
  AMK_TRY(programs, contestants_of(body));
  TimedSpan span;
  span.first = body.at("first").get<int>();
  span.tokens = body.at("tokens_per_sample").get<int>();
  span.flush = body.value("flush", false);
  if (static_cast<std::size_t>(span.first + span.tokens) > tokens_.size())
    return fail(ErrorKind::InvalidArgument, "the timed positions are outside the checked sequence");
  AMK_TRY(timing, time_programs(*model_, *programs.first, programs.second, span, body.value("most_ms", 4000)));
  std::vector<std::uint64_t> hashes;
  StepOutputs left;
  for (int s = 0; s < model_->sequence().batch(); ++s) {
    AMK_CHECK(read_step(*model_, s, (span.tokens - 1) % programs.first->plan().steps, left));
    hashes.push_back(left.hash);
  }
  return time_reply(timing, programs.first, programs.second, hashes.size() == 1 ? hashes[0] : joined(hashes));
}

Result<Message> GpuService::check_instruction(const Json& body) {
  const std::string instruction = body.at("instruction").get<std::string>();
  std::vector<InstructionDraw> draws;
  for (const Json& d : body.at("draws")) draws.push_back({d.at("position").get<int>(), d.at("seed").get<std::uint64_t>()});
  if (draws.empty()) return bad_field("draws", body.at("draws"), "at least one");
  tokens_.clear();  // the sequence's cache is overwritten
  AMK_TRY(program, program_of(body.at("config"), instruction));
  if (faults_) AMK_CHECK(obey_fault(body.value("fault", ""), body.at("config")));
  Message reply;
  std::uint64_t last = 0;
  std::int64_t unwritten = 0, not_finite = 0;
  bool repeatable = true, inputs = true, partials = true;
  for (const InstructionDraw& draw : draws) {
    AMK_TRY(first, run_instruction(*model_, *program, draw));
    AMK_TRY(second, run_instruction(*model_, *program, draw));
    repeatable = repeatable && first.hash == second.hash;
    for (const InstructionRun* run : {&first, &second}) {
      unwritten += run->unwritten;
      not_finite += run->not_finite;
      inputs = inputs && run->inputs_unchanged;
      partials = partials && run->partials_agree;
    }
    last = second.hash;
    reply.payload += payload_of(first.outputs);
  }
  draws_ = std::move(draws);
  reply.body = {{"repeatable", repeatable}, {"last_hash", last},          {"unwritten", unwritten},
                {"not_finite", not_finite}, {"inputs_unchanged", inputs}, {"partials_agree", partials}};
  AMK_CHECK(add_state(*program, reply.body));
  return reply;
}

Result<Message> GpuService::time_instruction(const Json& body) {
  if (draws_.empty()) return fail(ErrorKind::InvalidArgument, "an instruction is timed after its check");
  AMK_TRY(programs, contestants_of(body));
  const InstructionDraw draw = draws_.back();
  TimedSpan span;
  span.first = draw.position;
  span.flush = body.value("flush", false);
  span.decoded = false;
  if (programs.second != nullptr) AMK_CHECK(give_inputs(*model_, *programs.second, draw));
  AMK_CHECK(give_inputs(*model_, *programs.first, draw));
  AMK_TRY(timing, time_programs(*model_, *programs.first, programs.second, span, body.value("most_ms", 4000),
                                [&] { return give_inputs(*model_, *programs.first, draw); }));
  AMK_TRY(left, read_outputs(*model_, *programs.first, draw));
  return time_reply(timing, programs.first, programs.second, left.hash);
}

Result<Message> GpuService::decode(const Json& body) {
  const auto prompts = body.at("prompts").get<std::vector<std::vector<int>>>();
  const int count = body.at("count").get<int>();
  const bool keep_logits = body.value("logits", false);
  const DeviceSequence& sequence = model_->sequence();
  if (prompts.size() != static_cast<std::size_t>(sequence.batch()))
    return bad_field("prompts", prompts.size(), "one for each of " + std::to_string(sequence.batch()) + " sequences");
  std::vector<int> totals;  // tokens processed: the last generated one is not
  for (const auto& prompt : prompts) {
    totals.push_back(static_cast<int>(prompt.size()) + count - 1);
    if (prompt.empty() || count < 0 || totals.back() > sequence.max_seq())
      return bad_field("max_tokens", count,
                       "a prompt of at least one token, and prompt and generated tokens within " + std::to_string(sequence.max_seq()));
  }
  AMK_TRY(program, program_of(body.at("config")));
  for (std::size_t s = 0; s < prompts.size(); ++s) AMK_CHECK(sequence.set_tokens(prompts[s], 0, model_->stream(), static_cast<int>(s)));
  AMK_CHECK(sequence.poison_kv(model_->stream()));
  tokens_.clear();
  std::vector<std::string> logits(prompts.size());
  const int steps = *std::max_element(totals.begin(), totals.end());
  StepOptions options;
  for (int step = 0; step < steps; step += options.steps) {
    options = {};
    options.steps = std::min(program->plan().steps, steps - step);
    for (std::size_t s = 0; s < prompts.size(); ++s) {
      // Who is through repeats its last position: the same token, the same row, the same answer.
      const int last = std::max(0, totals[s] - 1), position = std::min(step, last), given = static_cast<int>(prompts[s].size());
      options.positions.push_back(position);
      options.last.push_back(last);
      options.given.push_back(given);
      if (position + 1 >= given) options.feed_back_each |= 1u << s;
    }
    AMK_CHECK(model_->enqueue(*program, options));
    if (!keep_logits) continue;
    AMK_CHECK(program->check(model_->stream()));
    for (std::size_t s = 0; s < prompts.size(); ++s)
      for (int i = 0; i < options.steps && step + i < totals[s]; ++i) {
        AMK_TRY(row, sequence.read_logits(model_->stream(), static_cast<int>(s), i));
        logits[s] += payload_of(row);
      }
  }
  AMK_CHECK(program->check(model_->stream()));
  Message reply;
  std::vector<std::vector<int>> generated;
  for (std::size_t s = 0; s < prompts.size(); ++s) {
    AMK_TRY(ids, sequence.read_tokens(static_cast<int>(prompts[s].size()), count, model_->stream(), static_cast<int>(s)));
    generated.push_back(std::move(ids));
    reply.payload += logits[s];
  }
  reply.body = {{"generated_ids", generated}, {"tokens_processed", totals}};
  return reply;
}

Result<Message> GpuService::trace(const Json& body) {
  AMK_TRY(config, parse_schedule_config(body.at("config")));
  const int position = body.at("position").get<int>();
  PlanOptions options;
  options.trace = true;
  AMK_TRY(built, model_->build(config, options));
  AMK_TRY(program, model_->load(built));
  std::vector<int> tokens(static_cast<std::size_t>(position) + 1, 1);
  for (int s = 0; s < model_->sequence().batch(); ++s) AMK_CHECK(model_->sequence().set_tokens(tokens, 0, model_->stream(), s));
  for (int p = 0; p <= position; ++p) AMK_CHECK(model_->enqueue(program, {p, false}));
  AMK_CHECK(program.check(model_->stream()));
  std::vector<std::uint64_t> marks;
  AMK_CHECK(program.read_trace(marks, model_->stream()));
  tokens_.clear();
  Message reply;
  reply.body = {{"marks", marks.size()}, {"clock", "ns"}};
  reply.payload.assign(reinterpret_cast<const char*>(marks.data()), marks.size() * 8);
  return reply;
}

}  // namespace amk
