#include "orchestrator/service/local_judge.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/memory_map.h"
#include "kernels/device_judge.h"
#include "kernels/evaluator/gpu_lock.h"
#include "kernels/evaluator/gpu_report.h"
#include "kernels/evaluator/nvrtc.h"
#include "kernels/registry.h"
#include "orchestrator/service/lane_pool.h"

namespace amk {
namespace {

constexpr std::chrono::milliseconds kBandwidthLimit{60'000};

// One GPU: its worker, and the families' judges that talk to it.
struct Lane {
  GpuDevice device;
  std::unique_ptr<WorkerLink> link;
  std::mutex mutex;                                            // of judges
  std::map<std::string, std::unique_ptr<DeviceJudge>> judges;  // by family; each is thread-safe
};

// GPUs of one kind: they share campaigns. Those of another kind have campaigns of their own.
struct Group {
  GpuTarget target;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::optional<LanePool> pool;
  std::size_t depth = 1;  // candidates a lane has at once
};

bool usable(const GpuDevice& device) { return device.sm_major >= 8 && device.cooperative_launch; }

}  // namespace

std::filesystem::path default_cache_folder() {
  const auto set = [](const char* name) -> std::filesystem::path {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
  };
  if (auto own = set("AMK_CACHE"); !own.empty()) return own;
  if (const auto cache = set("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "amk";
  if (const auto home = set("HOME"); home.is_absolute()) return home / ".cache" / "amk";
  static const std::filesystem::path below_tmp = own_folder("/tmp/amk-cache-" + std::to_string(::geteuid()));
  return below_tmp;
}

struct LocalJudge::Impl {
  explicit Impl(LocalJudgeOptions o) : options(std::move(o)) {}

  std::filesystem::path facts() const { return options.cache / "gpus.json"; }

  void probe() {
    std::call_once(probed, [this] {
      const auto gpus = gpu_devices();
      if (!gpus || !Nvrtc::open()) return;
      std::error_code code;
      for (const GpuDevice& device : *gpus) {
        if (!usable(device)) continue;
        const GpuTarget target = local_target(device, options.config / "gpus");
        Group* group = group_of(target.name);
        // One name for two products: only the first one's are used, for a comparison never crosses kinds.
        if (group != nullptr && group->lanes.front()->device.product != device.product) continue;
        if (group == nullptr) {
          std::filesystem::create_directories(options.cache, code);
          group = groups.emplace_back(std::make_unique<Group>()).get();
          group->target = target;
        }
        group->lanes.push_back(std::make_unique<Lane>());
        group->lanes.back()->device = device;
        group->lanes.back()->link = make_process_link(options.worker);
      }
      if (groups.empty()) return;
      const Json report = amk::gpu_report(facts());
      for (const auto& group : groups) {
        // Faults are injected by the order of checks, which must then be the order of candidates.
        group->depth = options.next_fault ? 1 : candidates_per_gpu(std::thread::hardware_concurrency(), group->lanes.size());
        group->pool.emplace(group->lanes.size(), group->depth);
        for (const Json& gpu : report["gpus"])
          if (gpu.value("uuid", "") == group->lanes.front()->device.uuid)
            group->target.read_bandwidth_gbs = gpu.value("read_bandwidth_gbs", group->target.read_bandwidth_gbs);
      }
    });
  }

  Group* group_of(const std::string& target) const {
    const auto at = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g->target.name == target; });
    return at == groups.end() ? nullptr : at->get();
  }

  Result<DeviceJudge*> judge_of(Lane& lane, const Workload& workload) {
    const std::lock_guard lock(lane.mutex);
    for (const auto& family : kernel_families()) {
      if (!family->accepts(workload.id())) continue;
      auto& held = lane.judges[std::string(family->name())];
      if (held == nullptr) {
        DeviceJudgeOptions o;
        o.config_dir = options.config;
        o.cache_folder = options.cache / "kernels";
        o.next_fault = options.next_fault;
        held = family->device_judge(lane.device, o, *lane.link);
      }
      return held.get();
    }
    return fail(ErrorKind::Internal, workload.id() + " belongs to no family");
  }

  LocalJudgeOptions options;
  std::once_flag probed;
  std::vector<std::unique_ptr<Group>> groups;  // in the driver's order of their first GPUs
};

LocalJudge::LocalJudge(LocalJudgeOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
LocalJudge::~LocalJudge() = default;

std::vector<GpuTarget> LocalJudge::local_gpus() {
  impl_->probe();
  std::vector<GpuTarget> out;
  for (const auto& group : impl_->groups) out.push_back(group->target);
  return out;
}

int LocalJudge::lanes(const GpuTarget& target) {
  impl_->probe();
  const Group* group = impl_->group_of(target.name);
  return group == nullptr ? 1 : static_cast<int>(group->lanes.size() * group->depth);
}

Json LocalJudge::gpu_report() {
  impl_->probe();
  Json report = amk::gpu_report(impl_->facts());
  for (Json& gpu : report["gpus"]) {
    if (gpu.contains("read_bandwidth_gbs")) continue;
    // A worker of its own: the lanes' may be in the middle of something.
    const auto lock = GpuLock::acquire(gpu.value("uuid", ""), std::chrono::seconds(5));
    if (!lock) {
      gpu["read_bandwidth_note"] = "not measured yet: the GPU is in use";
      continue;
    }
    const auto link = make_process_link(impl_->options.worker);
    const auto reply = link->call({{"op", "bandwidth"},
                                   {"gpu_ordinal", gpu.value("ordinal", 0)},
                                   {"cache", (impl_->options.cache / "kernels").string()},
                                   {"facts", impl_->facts().string()}},
                                  kBandwidthLimit, {});
    const Json measured = reply ? reply->body.value("read_bandwidth_gbs", Json()) : Json();
    if (reply && !measured.is_number()) {
      gpu["read_bandwidth_note"] = "could not be measured: the worker's answer is malformed";
    } else if (reply) {
      gpu["read_bandwidth_gbs"] = measured;
      if (!reply->body.value("lasting", true))
        gpu["read_bandwidth_note"] = "measured beside other work on the card: not kept, measured again next time";
    } else {
      gpu["read_bandwidth_note"] = "could not be measured: " + reply.error().message;
    }
  }
  return report;
}

Result<Verdict> LocalJudge::judge(const Workload& workload, const Json& canonical, Device device, const IncumbentNow& incumbent,
                                  const Progress& progress) {
  impl_->probe();
  const auto judge_here = [&]() -> Result<Verdict> {
    if (device != Device::Cuda || impl_->groups.empty()) return CpuJudge::judge(workload, canonical, device, incumbent, progress);
    Group* group = impl_->group_of(workload.target().name);
    if (group == nullptr) return fail(ErrorKind::Unavailable, "this machine has no " + workload.target().name);
    return group->pool->judge<Verdict>(progress.stop, [&](std::size_t lane) -> Result<Verdict> {
      AMK_TRY(judge, impl_->judge_of(*group->lanes[lane], workload));
      return judge->judge_against(workload, canonical, incumbent, progress);
    });
  };
  const std::uint64_t failures = mapped_read_failures();
  auto verdict = judge_here();
  // Whatever it says, of files that changed or could not be read under it, it says of no model.
  AMK_CHECK(workload.unchanged());
  AMK_CHECK(mapped_reads_succeeded_since(failures));
  return verdict;
}

}  // namespace amk
