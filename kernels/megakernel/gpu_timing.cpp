#include "kernels/megakernel/gpu_timing.h"

#include <algorithm>

#include "kernels/evaluator/nvml_monitor.h"

namespace amk {
namespace {

class ProgramContestant final : public Contestant {
 public:
  static Result<ProgramContestant> create(GpuModel& model, DeviceProgram& program, const TimedSpan& span, const cuda::Memory* flush) {
    ProgramContestant c(model, program, span, flush);
    AMK_TRY(start, cuda::Event::create());
    AMK_TRY(end, cuda::Event::create());
    c.start_ = std::move(start);
    c.end_ = std::move(end);
    return c;
  }
  Result<double> sample_us() override {
    const cuda::Stream& stream = model_->stream();
    if (flush_ != nullptr) {
      AMK_CHECK(cuda::fill_u32(flush_->pointer(), 0x12345678u, flush_->bytes() / 4, stream));
      AMK_CHECK(stream.synchronize());
    }
    const auto wall = std::chrono::steady_clock::now();
    AMK_CHECK(start_.record(stream));
    StepOptions options;
    for (int i = 0; i < span_.tokens; i += options.steps) {
      options.position = span_.first + i;
      options.steps = std::min(program_->plan().steps, span_.tokens - i);
      AMK_CHECK(model_->enqueue(*program_, options));
    }
    AMK_CHECK(end_.record(stream));
    AMK_CHECK(program_->check(stream));
    const double wall_us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - wall).count();
    AMK_TRY(us, cuda::Event::elapsed_us(start_, end_));
    wall_ratio_ = us > 0 ? wall_us / us : 0;
    return us / span_.tokens;
  }
  double wall_ratio() const { return wall_ratio_; }

 private:
  ProgramContestant(GpuModel& model, DeviceProgram& program, const TimedSpan& span, const cuda::Memory* flush)
      : model_(&model), program_(&program), span_(span), flush_(flush) {}
  GpuModel* model_;
  DeviceProgram* program_;
  TimedSpan span_;
  const cuda::Memory* flush_;
  cuda::Event start_, end_;
  double wall_ratio_ = 0;
};

}  // namespace

Result<ProgramTiming> time_programs(GpuModel& model, DeviceProgram& candidate, DeviceProgram* incumbent, const TimedSpan& span, int most_ms,
                                    const std::function<Status()>& before_last) {
  AMK_CHECK(model.context().reset_persisting_l2());
  cuda::Memory flush;
  if (span.flush) {
    AMK_TRY(memory, cuda::Memory::allocate(static_cast<std::size_t>(2 * model.device().l2_bytes)));
    flush = std::move(memory);
  }
  const cuda::Memory* flushed = span.flush ? &flush : nullptr;
  StepOptions options;
  for (int p = 0; span.decoded && p < span.first; p += options.steps) {
    options.position = p;
    options.steps = std::min(candidate.plan().steps, span.first - p);
    AMK_CHECK(model.enqueue(candidate, options));
  }
  AMK_CHECK(candidate.check(model.stream()));

  NvmlMonitor monitor(model.device().uuid);
  ProgramTiming out;
  out.other_processes = monitor.other_processes();
  AMK_TRY(a, ProgramContestant::create(model, candidate, span, flushed));
  TimingOptions limits;
  limits.most_time = std::chrono::milliseconds(most_ms);
  if (incumbent != nullptr) {
    AMK_TRY(b, ProgramContestant::create(model, *incumbent, span, flushed));
    AMK_TRY(timing, time_in_turn(a, &b, monitor, limits));
    out.timing = std::move(timing);
  } else {
    AMK_TRY(timing, time_in_turn(a, nullptr, monitor, limits));
    out.timing = std::move(timing);
  }
  out.other_processes = std::max(out.other_processes, monitor.other_processes());
  // Once more, last: what is checked after timing is this sample's output.
  AMK_CHECK(before_last ? before_last() : model.sequence().poison_outputs(model.stream()));
  AMK_TRY(last, a.sample_us());
  (void)last;
  out.wall_ratio = a.wall_ratio();
  return out;
}

Result<Pace> pace_programs(GpuModel& model, DeviceProgram& candidate, DeviceProgram& incumbent, int tokens) {
  const auto of_a_launch = [&](DeviceProgram& program) {
    TimedSpan span;
    span.tokens = std::min(program.plan().steps, tokens);
    return ProgramContestant::create(model, program, span, nullptr);
  };
  AMK_TRY(a, of_a_launch(candidate));
  AMK_TRY(b, of_a_launch(incumbent));
  return take_pace(a, b);
}

}  // namespace amk
