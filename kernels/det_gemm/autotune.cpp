#include "kernels/det_gemm/autotune.h"

#include <algorithm>
#include <utility>

#include "core/base/json.h"
#include "kernels/det_gemm/defaults.h"

namespace amk::det_gemm {
namespace {

constexpr std::size_t kSeeds = 4;

TunedEntry entry_for(const Problem& problem, const GpuTarget& target) {
  const Canonical shape = canonical(problem);
  TunedEntry entry;
  entry.capability = std::to_string(target.sm_major) + "." + std::to_string(target.sm_minor);
  entry.sm_count = target.sm_count;
  entry.op = problem.op;
  entry.weights = problem.weights;
  entry.out = problem.out;
  entry.chunk = problem.chunk;
  entry.m = bucket_edge(shape.m);
  entry.n = bucket_edge(shape.n);
  entry.k = bucket_edge(shape.k);
  return entry;
}

bool valid(const TunedEntry& entry) { return TunedTable::parse(tuned_file({entry})).has_value(); }

std::string key_of(const TunedEntry& e) {
  return std::string(to_string(e.op)) + " " + std::string(to_string(e.weights)) + " " + std::string(to_string(e.out)) + " chunk " +
         std::to_string(e.chunk) + " m" + std::to_string(e.m) + " n" + std::to_string(e.n) + " k" + std::to_string(e.k);
}

std::vector<Plan> candidates(const Problem& problem, const GpuTarget& target, const TunedEntry& bucket, std::span<const Config> seeds,
                             std::size_t limit) {
  const Canonical shape = canonical(problem);
  const Storage storage = dense_storage(shape);
  std::vector<Config> configs(seeds.begin(), seeds.end());
  const std::vector<Config> modelled = candidate_configs(shape, storage, target, 1000);
  configs.insert(configs.end(), modelled.begin(), modelled.end());
  std::vector<Plan> plans;
  for (std::size_t i = 0; i < configs.size() && plans.size() < limit; ++i) {
    const Config& config = configs[i];
    if (std::find(configs.begin(), configs.begin() + static_cast<std::ptrdiff_t>(i), config) != configs.begin() + static_cast<std::ptrdiff_t>(i))
      continue;
    TunedEntry entry = bucket;
    entry.config = config;
    auto plan = make_plan(shape, storage, config, target);
    if (plan && valid(entry)) plans.push_back(std::move(*plan));
  }
  return plans;
}

struct Closing {
  TuneDevice& device;
  ~Closing() { device.close(); }
};

}  // namespace

Result<TunedEntry> autotune(const Problem& problem, const GpuTarget& target, std::span<const Config> seeds, TuneDevice& device,
                            const TuneLimits& limits) {
  TunedEntry best = entry_for(problem, target);
  const std::vector<Plan> plans = candidates(problem, target, best, seeds, limits.candidates);
  if (plans.empty()) return fail(ErrorKind::Unsupported, "no candidate serves the whole bucket " + key_of(best));
  const auto end = limits.now() + limits.time;
  const Closing closing{device};
  AMK_CHECK(device.open(problem, plans));
  int tried = 0, rejected = 0, incorrect = 0;
  double best_us = 0;
  const Plan* fastest = nullptr;
  std::string fault;
  for (const Plan& plan : plans) {
    if (tried > 0 && limits.now() >= end) break;
    ++tried;
    const auto trial = device.run(plan, fastest);
    if (!trial && trial.error().kind != ErrorKind::Rejected) return tl::unexpected<Error>(trial.error());
    if (!trial || !trial->correct) {
      ++(trial ? incorrect : rejected);
      fault = trial ? trial->note : trial.error().message;
    } else if (fastest == nullptr || trial->speedup > 1) {
      fastest = &plan;
      best_us = trial->us;
      best.config = plan.config;
    }
  }
  if (fastest == nullptr)
    return fail(ErrorKind::Internal, "none of " + std::to_string(tried) + " candidates was correct, the last: " + fault,
                {{"tried", tried}, {"rejected", rejected}, {"incorrect", incorrect}});
  const Canonical shape = canonical(problem);
  best.evidence = {{"by", "autotune"},     {"gpu", device.gpu()},        {"shape", {shape.m, shape.n, shape.k}},
                   {"us", best_us},        {"candidates", plans.size()}, {"tried", tried},
                   {"rejected", rejected}, {"incorrect", incorrect}};
  return best;
}

Autotuner::Autotuner(std::unique_ptr<TuneDevice> device, TuneLimits limits, std::filesystem::path path)
    : device_(std::move(device)), limits_(std::move(limits)), path_(std::move(path)) {
  auto loaded = load_local_table(path_);
  if (loaded) {
    found_ = std::move(*loaded);
  } else {
    writable_ = false;
    warnings_.push_back("the local tuned table is neither used nor written: " + loaded.error().message);
  }
}

Result<Choice> Autotuner::choose(const Problem& problem, const Storage& storage, const GpuTarget& target, TunedTable& table,
                                 std::span<const std::string> order) {
  auto choice = det_gemm::choose(problem, storage, target, table, order);
  const bool wanted = order.empty() || order.front() == "tuned";
  if (!wanted || (choice && choice->exact) || (!choice && choice.error().kind == ErrorKind::InvalidArgument)) return choice;
  const TunedEntry bucket = entry_for(problem, target);
  const auto hits = table.find(problem, target);
  const bool known = !hits.empty() && hits.front().match == Match::Exact;  // there is an entry, and these buffers are what it cannot serve
  if (known || !tried_.insert(key_of(bucket)).second) return choice;
  std::vector<Config> seeds;
  for (const TunedHit& hit : hits)
    if (seeds.size() < kSeeds) seeds.push_back(hit.entry->config);
  Problem alone = problem;
  alone.resumed = false;  // entries are of the product; where its accumulators start is the call's
  auto entry = autotune(alone, target, seeds, *device_, limits_);
  if (!entry) {
    if (choice) choice->warnings.push_back("autotuning " + key_of(bucket) + " failed, served without: " + entry.error().message);
    return choice;
  }
  std::vector<std::string> warnings;
  if (writable_) {
    if (const Status kept = add_to_local_table(path_, *entry); !kept)
      warnings.push_back("what autotuning found is lost when this process ends: " + kept.error().message);
  }
  TunedTable one = TunedTable::parse(tuned_file({*entry})).value();  // autotune() gives valid entries only
  found_.append(one);
  table.append(std::move(one));
  auto tuned = det_gemm::choose(problem, storage, target, table, order);
  if (tuned) tuned->warnings.insert(tuned->warnings.end(), warnings.begin(), warnings.end());
  return tuned;
}

}  // namespace amk::det_gemm
