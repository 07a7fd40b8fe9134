#include "kernels/megakernel/device_program.h"

#include <algorithm>
#include <cstring>

namespace amk {
namespace {

tl::unexpected<Error> reject(const std::string& rule, const std::string& message, Json witness) {
  return fail(ErrorKind::Rejected, message, {{"rule", rule}, {"message", message}, {"witness", std::move(witness)}});
}

}  // namespace

Result<DeviceProgram> DeviceProgram::create(std::shared_ptr<const Program> program, DevicePlan plan, const CompiledKernel& kernel,
                                            const cuda::Context& context, const cuda::Stream& stream) {
  DeviceProgram d;
  AMK_TRY(module, cuda::Module::load(kernel.cubin));
  d.module_ = std::move(module);
  AMK_TRY(function, d.module_.function("amk_megakernel"));
  d.function_ = function;
  AMK_TRY(registers, function.attribute(cuda::abi::FunctionAttribute::Registers));
  AMK_TRY(local, function.attribute(cuda::abi::FunctionAttribute::LocalBytes));
  AMK_TRY(max_threads, function.attribute(cuda::abi::FunctionAttribute::MaxThreadsPerBlock));
  d.registers_ = registers;
  d.local_bytes_ = local;
  if (plan.threads > max_threads)
    return reject("registers",
                  "the kernel's " + std::to_string(registers) + " registers allow " + std::to_string(max_threads) +
                      " threads a block; the config asks for " + std::to_string(plan.threads),
                  {{"registers", registers}, {"threads", plan.threads}});
  AMK_CHECK(function.allow_dynamic_shared(static_cast<int>(plan.shared_bytes)));
  AMK_TRY(per_sm, function.blocks_per_sm(plan.threads, static_cast<std::size_t>(plan.shared_bytes)));
  AMK_TRY(sms, context.attribute(cuda::abi::DeviceAttribute::MultiprocessorCount));
  if (per_sm * sms < plan.grid)
    return reject("co-residency", "only " + std::to_string(per_sm * sms) + " of " + std::to_string(plan.grid) + " blocks can be resident at once",
                  {{"resident", per_sm * sms}, {"grid", plan.grid}});

  const auto bytes_of = [](const auto& list) { return list.size() * sizeof(list[0]); };
  d.tasks_at_ = (bytes_of(plan.queues) + 127) / 128 * 128;
  d.waits_at_ = (d.tasks_at_ + bytes_of(plan.tasks) + 127) / 128 * 128;
  d.streams_at_ = (d.waits_at_ + bytes_of(plan.waits) + 127) / 128 * 128;
  AMK_TRY(tables, cuda::Memory::allocate(d.streams_at_ + bytes_of(plan.streams)));
  std::vector<std::byte> image(tables.bytes());
  const auto put = [&](std::size_t at, const auto& list) {
    if (!list.empty()) std::memcpy(image.data() + at, list.data(), bytes_of(list));
  };
  put(0, plan.queues);
  put(d.tasks_at_, plan.tasks);
  put(d.waits_at_, plan.waits);
  put(d.streams_at_, plan.streams);
  AMK_CHECK(cuda::copy_to_device(tables.pointer(), image.data(), image.size(), stream));
  AMK_TRY(counters, cuda::Memory::allocate(static_cast<std::size_t>(plan.counter_count) * amk_vm::kCounterStride * 4));
  AMK_CHECK(cuda::fill_u8(counters.pointer(), 0, counters.bytes(), stream));
  AMK_TRY(activations, cuda::Memory::allocate(static_cast<std::size_t>(plan.activation_bytes)));
  AMK_TRY(report, cuda::Memory::allocate(sizeof(amk_vm::AbortReport)));
  AMK_CHECK(cuda::fill_u8(report.pointer(), 0, report.bytes(), stream));
  std::size_t longest = 0;
  for (const auto& q : plan.queues) longest = std::max<std::size_t>(longest, q.task_count);
  AMK_TRY(trace, cuda::Memory::allocate(plan.queues.size() * longest * amk_vm::kTraceMarks * 8));
  AMK_CHECK(cuda::fill_u8(trace.pointer(), 0, trace.bytes(), stream));
  AMK_CHECK(stream.synchronize());
  d.tables_ = std::move(tables);
  d.counters_ = std::move(counters);
  d.activations_ = std::move(activations);
  d.report_ = std::move(report);
  d.trace_ = std::move(trace);
  d.plan_ = std::move(plan);
  d.program_ = std::move(program);
  AMK_CHECK(d.make_poison(stream));
  AMK_CHECK(d.poison_activations(stream));
  AMK_CHECK(stream.synchronize());
  return d;
}

Status DeviceProgram::step(const DeviceWeights& weights, const DeviceSequence& sequence, const StepOptions& options, const cuda::Stream& stream) {
  if (weights.layout() != plan_.layout) return fail(ErrorKind::Internal, "the weights on the GPU have another layout than the program");
  const int batch = program_->batch;
  if (options.first_seq < 0 || options.first_seq + batch > sequence.batch())
    return bad_field("first_seq", options.first_seq,
                     "a sequence with " + std::to_string(batch - 1) + " behind it, of " + std::to_string(sequence.batch()));
  std::vector<int> positions = options.positions;
  if (positions.empty()) positions.assign(static_cast<std::size_t>(batch), options.position);
  if (positions.size() != static_cast<std::size_t>(batch))
    return bad_field("positions", positions.size(), "one for each of " + std::to_string(batch) + " sequences");
  if (sequence.max_seq() != program_->max_seq) return fail(ErrorKind::Internal, "the sequence's cache was made for another max_seq than the program");
  const int steps = options.steps, end = sequence.max_seq();
  const bool several = plan_.steps > 1;
  if (steps < 1 || steps > plan_.steps || steps > sequence.steps())
    return bad_field("steps", steps, "1 to " + std::to_string(std::min(plan_.steps, sequence.steps())) + ", as the program was lowered for");
  for (const auto& [field, list] : {std::pair{"last", &options.last}, {"given", &options.given}})
    if (!list->empty() && list->size() != positions.size())
      return bad_field(field, list->size(), "one for each of " + std::to_string(batch) + " sequences");
  for (std::size_t s = 0; s < positions.size(); ++s) {
    const int stops = options.last.empty() ? end - 1 : options.last[s];
    if (positions[s] >= end || stops < 0 || stops >= end || (several ? positions[s] + steps > end && options.last.empty() : positions[s] < 0))
      return bad_field("position", positions[s], "0 to " + std::to_string(end - steps));
  }
  if (epoch_ > program_->max_steps - steps) {  // counters would overflow: start over while nothing runs
    AMK_CHECK(stream.synchronize());
    AMK_CHECK(cuda::fill_u8(counters_.pointer(), 0, counters_.bytes(), stream));
    AMK_CHECK(poison_activations(stream));  // tags start over as well
    epoch_ = 0;
  }
  amk_vm::Params p{};
  const auto pointer = [](cuda::DevicePtr address) { return reinterpret_cast<void*>(address); };
  p.weights = static_cast<const unsigned char*>(pointer(weights.matrices()));
  p.vectors = static_cast<const unsigned char*>(pointer(weights.vectors()));
  p.embedding = static_cast<const unsigned char*>(pointer(weights.embedding()));
  p.rope = static_cast<const float*>(pointer(sequence.rope()));
  p.activations = static_cast<unsigned char*>(pointer(activations_.pointer()));
  p.kv = static_cast<unsigned char*>(pointer(sequence.kv(options.first_seq)));
  p.logits = static_cast<float*>(pointer(sequence.logits(options.first_seq)));
  p.tokens = static_cast<int*>(pointer(sequence.tokens(options.first_seq)));
  p.next_token = static_cast<int*>(pointer(sequence.next_token(options.first_seq)));
  p.counters = static_cast<int*>(pointer(counters_.pointer()));
  p.queues = static_cast<const amk_vm::QueueDesc*>(pointer(tables_.pointer()));
  p.tasks = static_cast<const amk_vm::TaskDesc*>(pointer(tables_.pointer() + tasks_at_));
  p.waits = static_cast<const amk_vm::WaitDesc*>(pointer(tables_.pointer() + waits_at_));
  p.streams = static_cast<const amk_vm::StreamDesc*>(pointer(tables_.pointer() + streams_at_));
  p.abort_report = static_cast<amk_vm::AbortReport*>(pointer(report_.pointer()));
  p.trace = static_cast<unsigned long long*>(pointer(trace_.pointer()));
  p.budget_ns = budget_ns_;
  p.position = positions.front();
  std::copy(positions.begin(), positions.end(), p.positions);
  p.epoch = static_cast<int>(epoch_);
  p.feed_back = static_cast<int>(!options.positions.empty() ? options.feed_back_each : options.feed_back ? (1u << batch) - 1 : 0u);
  if (several) {
    p.steps = steps;
    p.step_rows = sequence.batch();
    p.step_tags = static_cast<unsigned>(program_->instructions.size() + 1);
    for (std::size_t s = 0; s < positions.size(); ++s) {
      p.last[s] = options.last.empty() ? end - 1 : options.last[s];
      p.given[s] = !options.given.empty() ? options.given[s] : options.feed_back ? std::max(0, positions[s]) + 1 : end + 1;
    }
  }
  p.tag_base = static_cast<unsigned>(static_cast<std::uint64_t>(epoch_) * (program_->instructions.size() + 1));
  cuda::Launch launch;
  launch.grid.x = static_cast<unsigned>(plan_.grid);
  launch.block.x = static_cast<unsigned>(plan_.threads);
  launch.dynamic_shared_bytes = static_cast<unsigned>(plan_.shared_bytes);
  launch.cooperative = true;
  AMK_CHECK(function_(launch, stream, p));
  epoch_ += steps;
  return {};
}

Status DeviceProgram::check(const cuda::Stream& stream) {
  amk_vm::AbortReport report{};
  AMK_CHECK(cuda::copy_to_host(&report, report_.pointer(), sizeof report, stream));
  AMK_CHECK(stream.synchronize());
  if (report.aborted == 0) return {};
  AMK_CHECK(cuda::fill_u8(counters_.pointer(), 0, counters_.bytes(), stream));
  AMK_CHECK(cuda::fill_u8(report_.pointer(), 0, report_.bytes(), stream));
  AMK_CHECK(poison_activations(stream));
  AMK_CHECK(stream.synchronize());
  epoch_ = 0;
  // Of the queue, or of the ring's part of it.
  const std::vector<std::vector<TaskId>>& lists = report.kind == amk_vm::kAbortRing ? program_->streams : plan_.task_ids;
  std::string task = "an unknown task";
  if (report.sm < lists.size() && report.task < lists[report.sm].size()) task = task_name(*program_, lists[report.sm][report.task]);
  Json data = {{"sm", report.sm}, {"task", task}, {"have", static_cast<std::int32_t>(report.have)}, {"need", static_cast<std::int32_t>(report.need)}};
  std::string what = report.kind == amk_vm::kAbortPackets ? "packets of its input" : "the weight ring";
  if (report.kind == amk_vm::kAbortCounter && report.counter < program_->counters.size()) {
    const std::string& counter = program_->counters[report.counter].name;
    data["counter"] = counter;
    what = "counter " + counter + " at " + std::to_string(static_cast<std::int32_t>(report.have)) + " of " +
           std::to_string(static_cast<std::int32_t>(report.need));
  }
  return fail(ErrorKind::Timeout,
              "the megakernel ran out of its time budget: on SM " + std::to_string(report.sm) + " " + task + " waited for " + what, std::move(data));
}

// Some configs have hundreds of storages: filled one by one before each of 528 checked steps they took a third of the check.
Status DeviceProgram::make_poison(const cuda::Stream& stream) {
  std::vector<unsigned char> image(activations_.bytes(), kGuardByte);
  for (const StoragePlace& place : plan_.storages)
    for (std::int64_t at = 0; at + 4 <= place.bytes; at += 4) std::memcpy(image.data() + place.offset + at, &kPoisonWord, 4);
  AMK_TRY(poison, cuda::Memory::allocate(image.size()));
  AMK_CHECK(cuda::copy_to_device(poison.pointer(), image.data(), image.size(), stream));
  AMK_CHECK(stream.synchronize());  // the image is ours
  poison_ = std::move(poison);
  return {};
}

Status DeviceProgram::poison_activations(const cuda::Stream& stream) const {
  return cuda::copy_on_device(activations_.pointer(), poison_.pointer(), activations_.bytes(), stream);
}

Result<std::int64_t> DeviceProgram::damaged_guards(const cuda::Stream& stream) const {
  std::vector<unsigned char> bytes(activations_.bytes());
  AMK_CHECK(cuda::copy_to_host(bytes.data(), activations_.pointer(), bytes.size(), stream));
  AMK_CHECK(stream.synchronize());
  std::vector<char> owned(bytes.size(), 0);
  for (const StoragePlace& place : plan_.storages) std::fill_n(owned.begin() + place.offset, place.bytes, char{1});
  std::int64_t damaged = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) damaged += owned[i] == 0 && bytes[i] != kGuardByte ? 1 : 0;
  return damaged;
}

Status DeviceProgram::read_trace(std::vector<std::uint64_t>& out, const cuda::Stream& stream) const {
  out.resize(trace_.bytes() / 8);
  AMK_CHECK(cuda::copy_to_host(out.data(), trace_.pointer(), trace_.bytes(), stream));
  return stream.synchronize();
}

}  // namespace amk
