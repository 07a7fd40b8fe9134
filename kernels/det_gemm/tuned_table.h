// Winners of earlier searches, by stable buckets rather than exact shapes: config/tuned/det_gemm.json and files in the same format that
// autotuning wrote. Immutable after parsing; thread-safe.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/target/gpu_target.h"
#include "kernels/det_gemm/plan.h"

namespace amk::det_gemm {

// Upper edge of the bucket that an extent falls in: 1, 8, 16, 32, 64, then powers of two.
std::int64_t bucket_edge(std::int64_t extent);

struct TunedEntry {
  std::string capability;  // "9.0"
  int sm_count = 0;
  Op op = Op::Fwd;
  WeightLayout weights = WeightLayout::KN;
  OutType out = OutType::Bf16;
  std::int64_t chunk = 0;
  std::int64_t m = 0, n = 0, k = 0;  // bucket edges of the canonical shape
  Config config;
  Json evidence = Json::object();  // card, measured µs, peer's µs, date
};

// How well an entry fits a problem on a device.
enum class Match { Exact, Nearest };
struct TunedHit {
  const TunedEntry* entry = nullptr;
  Match match = Match::Exact;
};

class TunedTable {
 public:
  TunedTable() = default;
  // Every entry is validated: fields, config, and that its config runs at the bucket's edge. Corrupt names the entry and what is wrong.
  static Result<TunedTable> parse(const Json& json);
  static Result<TunedTable> load(const std::filesystem::path& path);
  void append(TunedTable other);  // later entries win over earlier ones of the same key

  // Entries of the same capability, op, layout, output and chunk, exact bucket first, then by distance; equal SM counts first.
  std::vector<TunedHit> find(const Problem& problem, const GpuTarget& target) const;

  const std::vector<TunedEntry>& entries() const { return entries_; }

 private:
  std::vector<TunedEntry> entries_;
};

Json to_json(const TunedEntry& entry);
Json tuned_file(const std::vector<TunedEntry>& entries);

}  // namespace amk::det_gemm
