// What a config must satisfy to run: each rule has a name, a reason and a test, used both by the search space and by make_plan().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/target/gpu_target.h"
#include "kernels/det_gemm/config.h"
#include "kernels/det_gemm/plan.h"

namespace amk::det_gemm {

struct RuleInput {
  const Canonical& shape;
  const Storage& storage;
  const Config& config;
  const GpuTarget& target;
};

struct Rule {
  std::string name;
  std::string reason;
  // The knobs that it looks at in a space of one path, where what the path ignores has one choice (space_of()).
  std::vector<std::string_view> reads;
  bool (*holds)(const RuleInput& in);
};

const std::vector<Rule>& rules();

// False when no config of in.config's path could take this choice of the named knob for this shape, or none worth a search.
bool choice_can_serve(const RuleInput& in, std::string_view knob, const Json& choice);

// Shared memory of one block, bytes.
std::int64_t shared_bytes(const Config& config, const Canonical& roles);

// Lines of a column tile in shared memory: where n lies contiguous, whole swizzled rows of 64 elements, or one of 32. More than one row of 32 side by
// side is right but slow (measured: 128×208 at 0.80 of cuBLAS where 128×176 has 0.96), so wide tiles are padded to rows of 64.
int y_lines(const Config& config, const Canonical& roles);

// Columns of the part of a chunk's sums that is added to the running total first, while the rest is computed; 0: all at once.
int first_added_columns(const Config& config, const Canonical& shape);

// 32-bit accumulator registers of one consumer thread.
int accumulator_registers(const Config& config, bool chunked);

// Shape as the kernel sees it.
Canonical roles_of(const Canonical& shape, bool swap);

// Warps of the mma path along each dimension.
struct WarpGrid {
  int m = 1, n = 1;
};
WarpGrid warp_grid(const Config& config);

}  // namespace amk::det_gemm
