// From a problem and a config to everything a launch needs, as data: pure, testable without a GPU, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/target/gpu_target.h"
#include "kernels/det_gemm/config.h"
#include "kernels/det_gemm/numeric_class.h"
#include "kernels/det_gemm/oracle.h"
#include "kernels/det_gemm/problem.h"

namespace amk::det_gemm {

// How the caller's buffers lie: what decides whether 16-byte copies are allowed. Strides in elements, alignments in bytes.
struct Storage {
  std::int64_t stride_x = 0, stride_y = 0, stride_out = 0;
  std::int64_t align_x = 256, align_y = 256, align_out = 256, align_total = 256;
  bool operator==(const Storage&) const = default;
};
Storage dense_storage(const Canonical& shape);

// One operand as TMA sees it: `inner` contiguous elements, `outer` lines `stride_bytes` apart, copied in boxes that are swizzled over rows of
// `swizzle_bytes`. A miss of L2 fetches `fetch_bytes` (0: what was asked).
struct MapSpec {
  std::int64_t inner = 0, outer = 0, stride_bytes = 0;
  int box_inner = 0, box_outer = 0;
  int swizzle_bytes = 128;
  int fetch_bytes = 256;
  bool operator==(const MapSpec&) const = default;
};

struct Plan {
  Canonical shape;  // as the caller sees it
  Canonical roles;  // as the kernel sees it: x and y exchanged when config.swap
  Storage storage;  // in the caller's order
  Config config;
  NumericClass numeric;
  std::string source;  // file under kernels/det_gemm/device
  std::string kernel;  // extern "C" name
  std::vector<std::pair<std::string, std::string>> defines;
  std::string architecture;  // "sm_90a"
  int block_threads = 0;
  int cluster = 1;  // blocks
  std::int64_t smem_bytes = 0;
  std::int64_t tiles_m = 0, tiles_n = 0;  // of a cluster, in the kernel's roles
  std::int64_t k_blocks = 0;
  std::int64_t grid_limit = 0;  // most blocks worth launching; a persistent grid launches min(this, what is resident)
  std::optional<MapSpec> map_x, map_y, map_out;
  std::optional<MapSpec> map_y_tail;  // the last box of a column tile that ends within a swizzled row
  bool wide_stores = false;
};

// Rejected names the rule and the reason; data = {"rule", "witness": the numbers}. `numeric` must be the device's class, chunked where shape.chunk >
// 0.
Result<Plan> make_plan(const Canonical& shape, const Storage& storage, const Config& config, const GpuTarget& target);

// The rectangle that block `rank` of a cluster computes for entry `index` of the walk (0 ≤ index < tiles_m · tiles_n), clipped to the
// output, in the caller's order of rows and columns. Not positive in size when it lies outside.
Block tile_of(const Plan& plan, std::int64_t index, int rank);

// The output rectangles in the order in which a grid of `blocks` blocks computes them, clipped to the output and in the caller's order
// of rows and columns; rectangles that lie outside are left out. Entry i of the result is what block i computes.
std::vector<std::vector<Block>> replay(const Plan& plan, std::int64_t blocks);

// The knob space of one shape with the rules that make_plan() applies, so that strategies do not propose what cannot run. The path is
// the defaults': choices that no config of that path and shape could take are left out.
SearchSpace space_of(const Canonical& shape, const Storage& storage, const GpuTarget& target, const Config& defaults);

Json to_json(const Plan& plan);

}  // namespace amk::det_gemm
