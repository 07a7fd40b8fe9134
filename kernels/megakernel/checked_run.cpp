#include "kernels/megakernel/checked_run.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include "core/base/hash.h"

namespace amk {
namespace {

std::uint64_t hash_logits(std::span<const float> logits) { return hash64({reinterpret_cast<const char*>(logits.data()), logits.size_bytes()}); }

constexpr std::uint32_t kExponentMask = 0x7f800000;  // all ones: infinity or NaN

void add_step(const StepOutputs& seen, std::span<const int> positions, int position, CheckedRun& run) {
  std::uint32_t unwritten = 0, not_finite = 0;  // of words, so that the loop is a few vector instructions
  for (const float v : seen.logits) {
    const auto word = std::bit_cast<std::uint32_t>(v);
    unwritten += word == kPoisonWord ? 1 : 0;
    not_finite += (word & kExponentMask) == kExponentMask ? 1 : 0;
  }
  run.unwritten += unwritten;
  run.not_finite += not_finite;
  run.unwritten += static_cast<std::uint32_t>(seen.next) == kPoisonWord ? 1 : 0;
  run.hashes.push_back(seen.hash);
  run.next_tokens.push_back(seen.next);
  if (std::binary_search(positions.begin(), positions.end(), position)) run.logits.insert(run.logits.end(), seen.logits.begin(), seen.logits.end());
}

// One launch over outputs and activations that hold nothing of an earlier one. False: patience is spent.
Result<bool> run_poisoned(GpuModel& model, DeviceProgram& program, const StepOptions& options, Patience* patience) {
  AMK_CHECK(model.sequence().poison_outputs(model.stream()));
  AMK_CHECK(program.poison_activations(model.stream()));
  if (patience == nullptr) {
    AMK_CHECK(model.run(program, options));
    return true;
  }
  AMK_CHECK(model.stream().synchronize());
  const auto start = std::chrono::steady_clock::now();
  AMK_CHECK(model.run(program, options));
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  return !patience->spent(took.count(), options.steps);
}

}  // namespace

bool Patience::spent(double launch_us, int steps) {
  if (step_us_ <= 0 || launches_ == kLaunches) return lost_;
  const double us = launch_us / steps;
  fastest_us_ = launches_ == 0 ? us : std::min(fastest_us_, us);
  ++launches_;
  lost_ = launches_ == kLaunches && fastest_us_ > step_us_;
  return lost_;
}

Status read_step(const GpuModel& model, int seq, int step, StepOutputs& out) {
  AMK_CHECK(model.sequence().read_logits(out.logits, model.stream(), seq, step));
  AMK_TRY(next, model.sequence().read_next_token(model.stream(), seq, step));
  out.next = next;
  out.hash = hash_logits(out.logits) ^ static_cast<std::uint64_t>(next);
  return {};
}

Result<CheckedRun> run_checked(GpuModel& model, DeviceProgram& program, std::span<const int> tokens, std::span<const int> positions, int seq,
                               Patience* patience) {
  const DeviceSequence& sequence = model.sequence();
  const cuda::Stream& stream = model.stream();
  CheckedRun run;
  StepOutputs seen;
  AMK_CHECK(sequence.set_tokens(tokens, 0, stream, seq));
  AMK_CHECK(sequence.poison_kv(stream));
  const int count = static_cast<int>(tokens.size());
  StepOptions options;
  options.first_seq = seq;
  for (int p = 0; p < count; p += options.steps) {
    options.position = p;
    options.steps = std::min(program.plan().steps, count - p);
    AMK_TRY(goes_on, run_poisoned(model, program, options, patience));
    if (!goes_on) return run;
    for (int i = 0; i < options.steps; ++i) {
      AMK_CHECK(read_step(model, seq, i, seen));
      add_step(seen, positions, p + i, run);
    }
  }
  return run;
}

Result<FedBack> run_fed_back(GpuModel& model, DeviceProgram& program, int first_token, int count) {
  const DeviceSequence& sequence = model.sequence();
  const cuda::Stream& stream = model.stream();
  FedBack out;
  StepOutputs seen;
  for (int s = 0; s < program.program().batch; ++s) {
    std::vector<int> tokens(static_cast<std::size_t>(count) + 1, 0);  // behind the first nothing of an earlier run
    tokens[0] = first_token + s;
    AMK_CHECK(sequence.set_tokens(tokens, 0, stream, s));
  }
  AMK_CHECK(sequence.poison_kv(stream));
  StepOptions options;
  options.feed_back = true;
  std::vector<CheckedRun> runs(static_cast<std::size_t>(program.program().batch));
  for (int p = 0; p < count; p += options.steps) {
    options.position = p;
    options.steps = std::min(program.plan().steps, count - p);
    AMK_CHECK(run_poisoned(model, program, options, nullptr));
    for (std::size_t s = 0; s < runs.size(); ++s)
      for (int i = 0; i < options.steps; ++i) {
        AMK_CHECK(read_step(model, static_cast<int>(s), i, seen));
        add_step(seen, {}, p + i, runs[s]);
      }
  }
  for (std::size_t s = 0; s < runs.size(); ++s) {
    AMK_TRY(tokens, sequence.read_tokens(0, count + 1, stream, static_cast<int>(s)));
    out.followed = out.followed && std::equal(runs[s].next_tokens.begin(), runs[s].next_tokens.end(), tokens.begin() + 1);
    tokens.pop_back();
    out.tokens.push_back(std::move(tokens));
    out.hashes.push_back(std::move(runs[s].hashes));
  }
  return out;
}

Result<BatchRun> run_checked_batch(GpuModel& model, DeviceProgram& program, std::span<const SequenceRun> sequences, Patience* patience) {
  const DeviceSequence& device = model.sequence();
  const cuda::Stream& stream = model.stream();
  BatchRun run;
  run.sequences.resize(sequences.size());
  int steps = 0;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    AMK_CHECK(device.set_tokens(sequences[s].tokens, 0, stream, static_cast<int>(s)));
    steps = std::max(steps, sequences[s].delay + static_cast<int>(sequences[s].tokens.size()));
  }
  AMK_CHECK(device.poison_kv(stream));
  StepOutputs seen;
  std::vector<std::uint64_t> early(sequences.size(), 0);  // of the first position, while a sequence has not begun
  const bool several = program.plan().steps > 1;
  StepOptions options;
  for (int step = 0; step < steps; ++step) {
    const int in_launch = step % program.plan().steps;
    if (in_launch == 0) {
      options = {};
      options.steps = std::min(program.plan().steps, steps - step);
      for (const SequenceRun& s : sequences) {
        const int last = static_cast<int>(s.tokens.size()) - 1;
        options.positions.push_back(several ? step - s.delay : std::clamp(step - s.delay, 0, last));
        options.last.push_back(last);
      }
      AMK_TRY(goes_on, run_poisoned(model, program, options, patience));
      if (!goes_on) return run;
    }
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      AMK_CHECK(read_step(model, static_cast<int>(s), in_launch, seen));
      CheckedRun& own = run.sequences[s];
      const int position = step - sequences[s].delay;
      if (position >= 0 && position < static_cast<int>(sequences[s].tokens.size())) {
        add_step(seen, sequences[s].positions, position, own);
        run.steady = run.steady && (position > 0 || step == 0 || own.hashes[0] == early[s]);
      } else if (position < 0) {
        run.steady = run.steady && (step == 0 || seen.hash == early[s]);
        early[s] = seen.hash;
      } else {
        run.steady = run.steady && seen.hash == own.hashes.back();
      }
    }
  }
  return run;
}

}  // namespace amk
