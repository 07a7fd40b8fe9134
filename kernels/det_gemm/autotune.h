// A call that no tuned entry was made for may be tuned once: a bounded list of candidates from the cost model, each held against the plain kernel bit
// for bit and timed, the winner kept for its bucket in memory and in a local table. Tuning chooses among schedules of one numeric class; it cannot
// change bits. Where it fails the call is served as if there were none, with a warning.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "kernels/det_gemm/dispatch.h"
#include "kernels/det_gemm/tuned_table.h"

namespace amk::det_gemm {

// What one candidate did.
struct Trial {
  bool correct = false;  // every bit is the plain kernel's
  double us = 0;         // median of a launch; only when correct
  std::string note;      // why not, when not
  double speedup = 0;    // over the best so far, timed in turn with it; only when correct and there is one
};

// Where candidates run. Tests play it.
class TuneDevice {
 public:
  virtual ~TuneDevice() = default;
  virtual std::string gpu() const = 0;
  // Operands of the problem; `plans` are about to be tried. Unavailable when the device has no room for them.
  virtual Status open(const Problem& problem, std::span<const Plan> plans) = 0;
  // `best`: of those that ran, the one to be timed in turn with; null: none was correct yet. What it took in its own trial is of another moment, in
  // which the card may have had less to do. Rejected: this plan cannot be built or held by the device. Any other error ends the tuning.
  virtual Result<Trial> run(const Plan& plan, const Plan* best) = 0;
  virtual void close() = 0;  // the operands are not needed any more
};

struct TuneLimits {
  std::size_t candidates = 16;
  std::chrono::milliseconds time{5000};  // no candidate is begun after it
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

// The fastest correct candidate as an entry for the problem's bucket; it is valid at the bucket's edge, as every entry of a table. Its evidence says
// what was tried. Unsupported when no candidate can serve the bucket; Internal when none was correct. `seeds`, winners of buckets near by, are tried
// before the cost model's.
Result<TunedEntry> autotune(const Problem& problem, const GpuTarget& target, std::span<const Config> seeds, TuneDevice& device,
                            const TuneLimits& limits);

// Entries that were found here. A file that is not there is an empty table; one that is no table is Corrupt, and is never written over.
Result<TunedTable> load_local_table(const std::filesystem::path& path);
// Adds or replaces one entry: under a lock between processes, and whole or not at all.
Status add_to_local_table(const std::filesystem::path& path, const TunedEntry& entry);

// dispatch.h's choose() with tuning where the tables have no exact bucket. Not thread-safe.
class Autotuner {
 public:
  // `path`: the local table, read here. A corrupt one is said by warnings() and is then neither used nor written.
  Autotuner(std::unique_ptr<TuneDevice> device, TuneLimits limits, std::filesystem::path path);

  // Tunes at most once a bucket and process, successful or not; what is found goes into `table` and the file. Only where `order` lets "tuned" serve
  // first.
  Result<Choice> choose(const Problem& problem, const Storage& storage, const GpuTarget& target, TunedTable& table,
                        std::span<const std::string> order);

  // What the local table holds; to be appended to the shipped one.
  const TunedTable& found() const { return found_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::unique_ptr<TuneDevice> device_;
  TuneLimits limits_;
  std::filesystem::path path_;
  bool writable_ = true;
  TunedTable found_;
  std::vector<std::string> warnings_;
  std::set<std::string> tried_;
};

}  // namespace amk::det_gemm
