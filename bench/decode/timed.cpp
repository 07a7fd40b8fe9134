#include "bench/decode/timed.h"

#include <algorithm>
#include <fstream>

#include "core/base/json.h"

namespace amk::bench {

Result<double> time_tokens(GpuModel& model, Entry& e, int first, int last) {
  AMK_TRY(start, cuda::Event::create());
  AMK_TRY(end, cuda::Event::create());
  AMK_CHECK(start.record(model.stream()));
  StepOptions options;
  options.feed_back = true;
  for (int p = first; p < last; p += options.steps) {
    options.position = p;
    options.steps = std::min(e.launch > 0 ? std::min(e.launch, e.program->plan().steps) : e.program->plan().steps, last - p);
    AMK_CHECK(model.enqueue(*e.program, options));
  }
  AMK_CHECK(end.record(model.stream()));
  AMK_CHECK(e.program->check(model.stream()));
  AMK_TRY(us, cuda::Event::elapsed_us(start, end));
  return us / (last - first);
}

Status repeat_rows(GpuModel& model, int rows, int end) {
  const auto& seq = model.sequence();
  const ModelSpec& spec = model.spec();
  const std::uint64_t of_cache = static_cast<std::uint64_t>(seq.max_seq()), caches = static_cast<std::uint64_t>(2 * spec.layers * spec.kv_heads);
  for (int s = 0; s < seq.batch(); ++s) {
    const std::uint64_t row = (seq.kv(s + 1) - seq.kv(s)) / (caches * of_cache);
    for (std::uint64_t c = 0; c < caches; ++c) {
      const cuda::DevicePtr first = seq.kv(s) + c * of_cache * row;
      for (int have = rows; have < end;) {
        const int more = std::min(have, end - have);
        AMK_CHECK(
            cuda::copy_on_device(first + static_cast<std::uint64_t>(have) * row, first, static_cast<std::uint64_t>(more) * row, model.stream()));
        have += more;
      }
    }
  }
  return model.stream().synchronize();
}

Status trace(GpuModel& model, const Entry& e, int position, int steps, const std::string& path) {
  PlanOptions options = options_of(e);
  options.trace = true;
  AMK_TRY(built, model.build(e.config, options));
  AMK_TRY(program, model.load(built));
  const auto& plan = program.plan();
  std::size_t longest = 0;
  for (const auto& q : plan.queues) longest = std::max<std::size_t>(longest, q.task_count);
  for (int i = 0; i < 2; ++i) AMK_CHECK(model.run(program, {position, false}));
  for (int step = 0; step < steps; ++step) {
    AMK_CHECK(model.run(program, {position, false}));
    std::vector<std::uint64_t> marks;
    AMK_CHECK(program.read_trace(marks, model.stream()));
    std::ofstream out(path + (steps > 1 ? "." + std::to_string(step) : "") + ".tsv");
    out << "sm\ttask\tname";
    for (int m = 0; m < amk_vm::kTraceMarks; ++m) out << "\tt" << m;
    out << "\n";
    std::uint64_t zero = ~0ull;
    for (const auto t : marks)
      if (t != 0) zero = std::min(zero, t);
    for (std::size_t sm = 0; sm < plan.queues.size(); ++sm) {
      for (std::size_t i = 0; i < plan.queues[sm].task_count; ++i) {
        out << sm << "\t" << i << "\t" << task_name(*built.program, plan.task_ids[sm][i]);
        for (int m = 0; m < amk_vm::kTraceMarks; ++m) {
          const auto t = marks[(sm * longest + i) * amk_vm::kTraceMarks + static_cast<std::size_t>(m)];
          out << "\t" << (t == 0 ? -1 : static_cast<std::int64_t>(t - zero));
        }
        out << "\n";
      }
    }
  }
  return {};
}

}  // namespace amk::bench
