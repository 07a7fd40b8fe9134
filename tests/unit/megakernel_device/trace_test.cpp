// The trace report on timestamps that are played: a step in which every task takes known times and begins when its waits allow.
#include "kernels/megakernel/trace_report.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "core/base/json.h"
#include "core/model/load.h"
#include "core/program/lower.h"
#include "kernels/megakernel/device_plan.h"

using namespace amk;

namespace {

enum Mark { kStart, kReady, kStaged, kFirstData, kComputed, kReduced, kPublished, kStarved };
constexpr std::uint64_t kZero = 1'000'000;
constexpr int kSms = 4;

struct Played {
  Program program;
  DevicePlan plan;
  std::vector<std::uint64_t> marks;
  std::int64_t gemvs = 0, tiles = 0, others = 0, span = 0, waited = 0;
};

Played play() {
  ModelSources sources;
  sources.catalogue_dir = std::string(AMK_SOURCE_DIR) + "/config/models";
  const auto ref = resolve_model("toy-2L", sources);
  REQUIRE(ref);
  const DeviceLimits limits{"sm_90a", 9, kSms, 232448, 1024};
  ScheduleConfig config;
  LoweringTarget target;
  target.sm_count = kSms;
  target.smem_optin_bytes = limits.smem_optin_bytes;
  target.max_seq = 64;
  Played p;
  p.program = lower(ref->spec, config, target, gpu_format(ref->spec.dtype)).value();
  p.plan = plan_device(p.program, config, limits).value();
  std::size_t longest = 0;
  for (const auto& q : p.plan.queues) longest = std::max<std::size_t>(longest, q.task_count);
  p.marks.assign(p.plan.queues.size() * longest * amk_vm::kTraceMarks, 0);

  std::vector<std::int64_t> published(p.program.tasks.size(), -1);
  std::vector<std::size_t> at(kSms, 0);
  std::vector<std::int64_t> free_at(kSms, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t sm = 0; sm < kSms; ++sm) {
      if (at[sm] == p.plan.task_ids[sm].size()) continue;
      const TaskId id = p.plan.task_ids[sm][at[sm]];
      const Task& task = p.program.tasks[static_cast<std::size_t>(id)];
      std::int64_t ready = free_at[sm];
      bool met = true;
      for (const Wait& wait : task.waits) {
        std::vector<std::int64_t> signals;
        for (std::size_t other = 0; other < p.program.tasks.size(); ++other)
          if (p.program.tasks[other].signal == wait.counter && published[other] >= 0) signals.push_back(published[other]);
        std::sort(signals.begin(), signals.end());
        if (static_cast<std::int64_t>(signals.size()) < wait.target) met = false;
        if (met && wait.target > 0) ready = std::max(ready, signals[static_cast<std::size_t>(wait.target) - 1]);
      }
      if (!met) continue;
      std::uint64_t* m = &p.marks[(sm * longest + at[sm]) * amk_vm::kTraceMarks];
      const auto set = [&](Mark k, std::int64_t ns) { m[k] = kZero + static_cast<std::uint64_t>(ns); };
      set(kStart, free_at[sm]);
      set(kReady, ready);
      p.waited += ready - free_at[sm];
      std::int64_t end = 0, out = 0;
      if (task.op == Opcode::Gemv) {
        ++p.gemvs;
        set(kStaged, ready + 100);
        set(kFirstData, ready + 300);
        m[kStarved] = 50;
        end = ready + 600;
        set(kComputed, end);
        set(kReduced, end + 20);
        out = end + 100;
      } else if (task.op == Opcode::AttentionTile) {
        ++p.tiles;
        end = ready + 500;
        set(kComputed, end);
        out = end + 60;
      } else {
        ++p.others;
        end = out = ready + 400;
      }
      set(kPublished, out);
      published[static_cast<std::size_t>(id)] = out;
      free_at[sm] = end;
      p.span = std::max(p.span, out);
      ++at[sm];
      moved = true;
    }
  }
  for (std::size_t sm = 0; sm < kSms; ++sm) REQUIRE(at[sm] == p.plan.task_ids[sm].size());
  return p;
}

}  // namespace

TEST_CASE("trace: every nanosecond of every task is accounted for") {
  const Played p = play();
  const auto trace = read_trace(p.program, p.plan, p.marks);
  REQUIRE_MESSAGE(trace, trace.error().message);
  CHECK(trace->span_ns == p.span);
  CHECK(trace->tasks.size() == p.program.tasks.size());
  const Json s = summarize_trace(p.program, *trace);
  CHECK(s["span_us"].get<double>() == doctest::Approx(static_cast<double>(p.span) / 1000));
  const auto mean_us = [](std::int64_t ns) { return doctest::Approx(static_cast<double>(ns) / 1000 / kSms); };
  CHECK(s["per_sm_us"]["wait_dependency"].get<double>() == mean_us(p.waited));
  CHECK(s["per_sm_us"]["wait_weights"].get<double>() == mean_us(p.gemvs * 250));
  CHECK(s["per_sm_us"]["compute"].get<double>() == mean_us(p.gemvs * 350 + p.tiles * 500 + p.others * 400));
  CHECK(s["per_sm_us"]["publish"].get<double>() == mean_us(p.gemvs * 80 + p.tiles * 60));
  // The step cannot end before its longest chain, and here nothing else takes time.
  CHECK(s["longest_chain"]["us"].get<double>() == doctest::Approx(static_cast<double>(p.span) / 1000));
  double along = 0;
  for (const auto& [kind, us] : s["longest_chain"]["by_kind"].items()) along += us.get<double>();
  CHECK(along == doctest::Approx(static_cast<double>(p.span) / 1000));
}

TEST_CASE("trace: the Chrome form has one event for each part of a task, on its SM's row") {
  const Played p = play();
  const auto trace = read_trace(p.program, p.plan, p.marks);
  REQUIRE(trace);
  const Json chrome = chrome_trace(p.program, *trace);
  std::int64_t compute = 0, publish = 0;
  for (const Json& e : chrome["traceEvents"]) {
    if (e["ph"] != "X") continue;
    CHECK(e["tid"].get<int>() < kSms);
    CHECK(e["dur"].get<double>() > 0);
    compute += e["cat"] == "compute" ? 1 : 0;
    publish += e["cat"] == "publish" ? 1 : 0;
  }
  CHECK(compute == p.gemvs + p.tiles + p.others);
  CHECK(publish == p.gemvs + p.tiles);
}

TEST_CASE("trace: marks of another plan and of a step that did not finish are refused by name") {
  Played p = play();
  auto cut = p.marks;
  cut.pop_back();
  CHECK(read_trace(p.program, p.plan, cut).error().message.find("marks") != std::string::npos);
  p.marks[kPublished] = 0;
  const auto unfinished = read_trace(p.program, p.plan, p.marks);
  REQUIRE(!unfinished);
  CHECK(unfinished.error().message.find("did not finish") != std::string::npos);
}
