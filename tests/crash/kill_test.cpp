// kill -9 at every failpoint and at random, under load from several threads. AMK_CRASH_KILLS sets how many kills are made (default: a short run).
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "core/base/random.h"
#include "orchestrator/store/failpoint.h"
#include "tests/crash/audit.h"
#include "tests/crash/child.h"
#include "tests/crash/load.h"
#include "tests/support/temp_folder.h"

using namespace amk;
using namespace amk::test;

namespace {

int wanted_kills() {
  const char* text = std::getenv("AMK_CRASH_KILLS");
  return text == nullptr ? 120 : std::max(1, std::atoi(text));
}

// A workspace that lives through many kills; a new one after a while, so that rounds stay short.
class Victim {
 public:
  explicit Victim(std::uint64_t seed) : rng_(seed), log_(1 << 16) { renew(); }

  // One round: load in a child until it is stopped, then the audit. `spec`: failpoints; empty: a random moment.
  ChildEnd round(const std::string& spec, bool fresh = false) {
    if (++rounds_ % 20 == 0 || fresh) renew();
    LoadOptions load;
    load.store = options();
    load.seed = ++load_seed_;
    load.operations = 20 + static_cast<int>(rng_.below(60));
    const long after_us = spec.empty() ? static_cast<long>(rng_.below(60'000)) : -1;
    const ChildEnd end = run_child(
        [&] {
          if (!spec.empty() && !failpoint::arm(spec)) return 2;
          // A load that could not start was refused something (an injected error): that is no crash, and no success.
          (void)run_load(load, log_);
          return 0;
        },
        after_us);
    CAPTURE(spec);
    CAPTURE(load.seed);
    CHECK(end != ChildEnd::Failed);
    for (const AckEntry& ack : log_.taken()) acks_.push_back(ack);
    log_.clear();
    if (end == ChildEnd::Killed) ++kills;
    for (const std::string& problem : audit(options(), acks_, true)) {
      FAIL_CHECK(problem);
      ++problems;
    }
    return end;
  }

  int kills = 0, problems = 0;
  std::size_t acknowledged = 0;

 private:
  void renew() {
    acknowledged += acks_.size();
    acks_.clear();
    folder_ = std::make_unique<TempFolder>();
  }
  StoreOptions options() {
    StoreOptions o;
    o.workspace = folder_->path;
    o.reserve_bytes = 1 << 16;
    o.readers = 2;
    // Both journal modes on one file: they take turns.
    o.journal = rng_.below(4) == 0 ? JournalMode::Rollback : JournalMode::Wal;
    return o;
  }
  Rng rng_;
  AckLog log_;
  std::unique_ptr<TempFolder> folder_;
  std::vector<AckEntry> acks_;
  std::uint64_t load_seed_ = 0;
  int rounds_ = 0;
};

bool only_in_new_workspaces(Failpoint point) {
  return point == Failpoint::MigrateStep || point == Failpoint::MigrateStepDone || point == Failpoint::ReserveCreate ||
         point == Failpoint::ExportWritten || point == Failpoint::ExportRenamed;
}

}  // namespace

TEST_CASE("killed at every failpoint and at random: nothing acknowledged is lost, nothing is there twice, the counts are the rows'") {
  const int wanted = wanted_kills();
  Victim victim(20261127);
  Rng rng(5);
  std::array<int, kFailpoints> reached{};
  std::array<std::uint64_t, kFailpoints> latest{};  // how often a round passes the point, roughly: learnt from rounds that ended before
  latest.fill(100);
  int rounds = 0;
  while (victim.kills < wanted && rounds < 20 * wanted && victim.problems < 5) {
    // Half of the rounds at random moments, half at a failpoint, each in turn, at its n-th time.
    std::string spec;
    const int point = rounds / 2 % kFailpoints;
    const auto at = static_cast<std::size_t>(point);
    std::uint64_t n = 0;
    if (++rounds % 2 == 0) {
      n = 1 + rng.below(latest[at]);
      spec = std::string(to_string(static_cast<Failpoint>(point))) + "=kill@" + std::to_string(n);
      if (static_cast<Failpoint>(point) == Failpoint::ReserveRelease) spec += ",vfs.wal.write=enospc@20,vfs.journal.write=enospc@20";
    } else if (rng.below(4) == 0) {
      // A disk that is full for a moment, then a kill.
      spec = "vfs.wal.write=enospc@" + std::to_string(1 + rng.below(200)) + ",write.committed=kill@" + std::to_string(5 + rng.below(40));
    }
    const ChildEnd end = victim.round(spec, n > 0 && only_in_new_workspaces(static_cast<Failpoint>(point)));
    if (n == 0) continue;
    if (end == ChildEnd::Killed) {
      ++reached[at];
      latest[at] = std::min<std::uint64_t>(2 * latest[at], 400);
    } else {
      latest[at] = std::max<std::uint64_t>(1, n / 2);
    }
  }
  CHECK(victim.kills >= wanted);
  CHECK(victim.problems == 0);
  // In a long run every point that this load can reach was reached.
  std::string never;
  for (int i = 0; i < kFailpoints; ++i)
    if (reached[static_cast<std::size_t>(i)] == 0) never.append(" ").append(to_string(static_cast<Failpoint>(i)));
  MESSAGE(victim.kills << " kills in " << rounds << " rounds, " << victim.acknowledged << "+ acknowledged records, " << victim.problems
                       << " problems; points not reached in this run:" << never);
}
