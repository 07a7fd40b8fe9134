// bench_aa_control [--model small] [--times 40] [--ms 600] [--cache DIR]: two copies of one program, timed in turn as a candidate and its incumbent
// are. A comparison should come out inconclusive in at least 95% of cases, and must never keep. Prints one JSON object; exit 77 without a GPU.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>

#include "core/base/json.h"
#include "core/base/random.h"
#include "core/base/resources.h"
#include "core/model/load.h"
#include "kernels/megakernel/gpu_timing.h"

using namespace amk;

namespace {

constexpr double kMinSpeedup = 1.01;  // of the keep rule (orchestrator/campaign/policy.cpp)

Result<Json> control(std::map<std::string, std::string> args) {
  const auto arg = [&](const char* name, const char* fallback) { return args.count(name) != 0 ? args[name] : std::string(fallback); };
  AMK_TRY(resources, find_resources());
  AMK_TRY(gpus, gpu_devices());
  AMK_TRY(ref, resolve_model(arg("--model", "small"), ModelSources::from_environment(resources.config())));
  AMK_TRY(weights, load_weights(ref));
  constexpr int kMaxSeq = 512, kTokens = 264;
  const int max_seq = std::min(kMaxSeq, ref.spec.max_position), tokens = std::min(kTokens, max_seq);
  AMK_TRY(model, GpuModel::open(gpus.front(), weights, max_seq, arg("--cache", "/tmp/amk-cubins")));
  AMK_TRY(built, model->build(ScheduleConfig{}));
  AMK_TRY(a, model->load(built));
  AMK_TRY(b, model->load(built));
  Rng rng(1);
  std::vector<int> ids;
  for (int i = 0; i < tokens; ++i) ids.push_back(static_cast<int>(rng.below(static_cast<std::uint64_t>(ref.spec.vocab))));
  AMK_CHECK(model->sequence().set_tokens(ids, 0, model->stream()));
  const bool flush = ref.spec.decode_weight_bytes() < 4 * gpus.front().l2_bytes;
  const TimedSpan span{tokens - (flush ? 1 : 8), flush ? 1 : 8, flush};

  const int times = std::atoi(arg("--times", "40").c_str()), ms = std::atoi(arg("--ms", "600").c_str());
  int inconclusive = 0, faster = 0, slower = 0, keeps = 0;
  double worst = 0;
  for (int i = 0; i < times; ++i) {
    AMK_TRY(timed, time_programs(*model, a, &b, span, ms));
    const Timing& t = timed.timing;
    inconclusive += t.decision == Comparison::Inconclusive ? 1 : 0;
    faster += t.decision == Comparison::Faster ? 1 : 0;
    slower += t.decision == Comparison::Slower ? 1 : 0;
    if (!t.versus) return fail(ErrorKind::Internal, "a comparison without a ratio");
    keeps += t.decision == Comparison::Faster && t.versus->ci_low >= kMinSpeedup ? 1 : 0;
    worst = std::max(worst, std::abs(t.versus->ratio - 1));
  }
  return Json{{"bench", "aa_control"},
              {"metric", "false_keep_rate"},
              {"value", static_cast<double>(keeps) / std::max(1, times)},
              {"unit", "of comparisons"},
              {"times", times},
              {"inconclusive", inconclusive},
              {"called_faster", faster},
              {"called_slower", slower},
              {"worst_ratio_error", worst},
              {"model", ref.spec.name},
              {"cold", flush ? "L2 flushed" : "by size"},
              {"gpu", gpus.front().product}};
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> args;
  for (int i = 1; i + 1 < argc; i += 2) args[argv[i]] = argv[i + 1];
  const auto done = control(std::move(args));
  if (!done) {
    std::fprintf(stderr, "%s\n", done.error().message.c_str());
    return done.error().kind == ErrorKind::Unavailable ? 77 : 3;
  }
  std::cout << done->dump() << std::endl;
  return 0;
}
