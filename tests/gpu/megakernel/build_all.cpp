#include "tests/gpu/megakernel/build_all.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "kernels/evaluator/build_cache.h"

namespace amk::gpu_test {
namespace {

template <class Work>
void on_all_cores(std::size_t count, const Work& work) {
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    });
}

// Of each line the candidate with the kernel that it makes of `base(line)`; none, a failed check, where it makes none.
std::vector<std::optional<BuiltCandidate>> build_changed(const Bench& bench, std::span<const ChangedLine> lines,
                                                         const std::function<const BuiltCandidate&(const ChangedLine&)>& base, Checks& checks) {
  std::vector<std::optional<BuiltCandidate>> out(lines.size());
  const auto compiler = NvrtcCompiler::open();
  const auto cache = BuildCache::open(bench.cache);
  if (!checks.check(compiler, "compiler") || !checks.check(cache, "cache")) return out;
  std::vector<Result<BuildCache::Built>> made(lines.size(), fail(ErrorKind::InvalidArgument, "the source has no such line"));
  on_all_cores(lines.size(), [&](std::size_t i) {
    BuiltCandidate candidate = base(lines[i]);
    if (change(candidate.plan.request, lines[i])) {
      made[i] = cache->build(*compiler, candidate.plan.request);
      out[i] = std::move(candidate);
    }
  });
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (checks.check(made[i], std::string("builds: ") + lines[i].name))
      out[i]->kernel = std::move(made[i]->kernel);
    else
      out[i].reset();
  }
  return out;
}

}  // namespace

void build_all(const GpuModel& model, const std::vector<Build>& builds) {
  on_all_cores(builds.size(), [&](std::size_t i) { (void)model.build(builds[i].config, builds[i].options); });
}

void try_changed(const Bench& bench, GpuModel& model, std::span<const ChangedLine> lines,
                 const std::function<const BuiltCandidate&(const ChangedLine&)>& base,
                 const std::function<std::optional<Seen>(const ChangedLine&, DeviceProgram&)>& tried, Checks& checks) {
  const auto changed = build_changed(bench, lines, base, checks);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string name = lines[i].name;
    if (!changed[i]) continue;
    auto program = model.load(*changed[i]);
    if (!checks.check(program, "loads: " + name)) continue;
    const auto seen = tried(lines[i], *program);
    if (!seen) continue;
    checks.check(seen->right == lines[i].nothing(), (lines[i].nothing() ? "unharmed: " : "noticed: ") + name + " " + seen->what);
  }
}

}  // namespace amk::gpu_test
