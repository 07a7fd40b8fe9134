#include "kernels/det_gemm/plan.h"

#include <algorithm>
#include <memory>

#include "core/base/integer.h"
#include "core/schedule/valid_points.h"
#include "kernels/det_gemm/device/raster.cuh"
#include "kernels/det_gemm/rules.h"

namespace amk::det_gemm {
namespace {

constexpr std::int64_t kMaxTiles = std::int64_t{1} << 26;  // host checks look at every tile once

class Defines {
 public:
  explicit Defines(Plan& plan) : plan_(plan) {}
  void operator()(std::string name, std::int64_t value) { plan_.defines.emplace_back("DG_" + std::move(name), std::to_string(value)); }

 private:
  Plan& plan_;
};

// Lines of a tile that are worth copying: all, unless the whole operand has fewer and lies with k contiguous (then boxes can be shorter).
int lines_to_copy(std::int64_t lines, bool k_major, int tile_lines, int slices) {
  if (!k_major) return tile_lines;
  return static_cast<int>(std::min<std::int64_t>(tile_lines, ceil_div(std::max<std::int64_t>(lines, 1), 8 * slices) * 8 * slices));
}

MapSpec operand_map(std::int64_t lines, std::int64_t k, bool k_major, std::int64_t stride, int copied_lines, int tile_k, int slices, int atom) {
  MapSpec map;
  map.inner = k_major ? k : lines;
  map.outer = k_major ? lines : k;
  map.stride_bytes = stride * 2;
  map.box_inner = atom;
  map.box_outer = (k_major ? copied_lines : tile_k) / slices;
  map.swizzle_bytes = atom * 2;
  return map;
}

// Sums lie dense in the order of the output.
bool reads_sums_in_pairs(const Plan& plan) {
  return plan.shape.resumed && !plan.config.swap && plan.shape.n % 2 == 0 && plan.storage.align_total % 8 == 0;
}

void plan_wgmma(Plan& plan, Defines& define) {
  const Config& c = plan.config;
  const Canonical& r = plan.roles;
  plan.source = "hopper.cu";
  plan.kernel = "det_gemm_hopper";
  plan.architecture = "sm_90a";
  plan.block_threads = c.consumers * 128 + (c.producer == Producer::Warp ? 32 : 128);
  plan.cluster = c.cluster_m * c.cluster_n;
  plan.tiles_m = ceil_div(ceil_div(r.m, c.tile_m), c.cluster_m);
  plan.tiles_n = ceil_div(ceil_div(r.n, c.tile_n), c.cluster_n);
  plan.grid_limit = plan.tiles_m * plan.tiles_n * plan.cluster;
  const std::int64_t stride_x = c.swap ? plan.storage.stride_y : plan.storage.stride_x;
  const std::int64_t stride_y = c.swap ? plan.storage.stride_x : plan.storage.stride_y;
  const int lines_y = y_lines(c, r), atom_y = r.y_k_contiguous || lines_y % 64 == 0 ? 64 : 32;
  const int load_x = lines_to_copy(r.m, r.x_k_contiguous, c.tile_m, c.cluster_n);
  const int load_y = lines_to_copy(r.n, r.y_k_contiguous, c.tile_n, c.cluster_m);
  plan.map_x = operand_map(r.m, r.k, r.x_k_contiguous, stride_x, load_x, c.tile_k, c.cluster_n, 64);
  plan.map_y = operand_map(r.n, r.k, r.y_k_contiguous, stride_y, load_y, c.tile_k, c.cluster_m, atom_y);
  plan.map_x->fetch_bytes = plan.map_y->fetch_bytes = c.l2_fetch;
  if (const int tail = r.y_k_contiguous ? 0 : c.tile_n % atom_y; tail > 0) {
    plan.map_y_tail = plan.map_y;
    plan.map_y_tail->box_inner = tail;  // swizzled and spaced as the full boxes are
  }
  if (c.epilogue == Epilogue::Tma) plan.map_out = MapSpec{plan.shape.n, plan.shape.m, plan.storage.stride_out * 2, 64, 16};
  const L2Hint hint_x = c.swap ? c.l2_y : c.l2_x, hint_y = c.swap ? c.l2_x : c.l2_y;
  define("TILE_M", c.tile_m);
  define("TILE_N", c.tile_n);
  define("TILE_K", c.tile_k);
  define("STAGES", c.stages);
  define("CONSUMERS", c.consumers);
  define("CLUSTER_M", c.cluster_m);
  define("CLUSTER_N", c.cluster_n);
  define("X_KMAJOR", r.x_k_contiguous);
  define("Y_KMAJOR", r.y_k_contiguous);
  define("Y_LINES", lines_y);
  define("Y_ATOM", atom_y);
  define("OUT_FP32", r.out == OutType::Fp32);
  define("TRANSPOSED", c.swap);
  define("EPILOGUE", static_cast<int>(c.epilogue));
  define("STORE_BUFFERS", c.store_buffers);
  define("HINT_X", static_cast<int>(hint_x));
  define("HINT_Y", static_cast<int>(hint_y));
  define("X_LOAD", load_x);
  define("Y_LOAD", load_y);
  define("PRODUCER_WARP", c.producer == Producer::Warp);
  define("OVERLAP", c.overlap);
  define("DEFER", c.defer ? std::min(c.tile_n / 64, 2) : 0);
  define("CHUNK_BLOCKS", plan.shape.chunk / c.tile_k);
  define("RESUMED", plan.shape.resumed);
  define("SUM_PAIRS", reads_sums_in_pairs(plan));
  define("WGMMA_N", c.tile_n);
  define("WGMMA_REGS", c.tile_n / 2);
  for (int i = 1; i <= 4; ++i) define("WGMMA_REGS_PLUS_" + std::to_string(i), c.tile_n / 2 + i);
  const int low = first_added_columns(c, plan.shape);
  define("LOW_N", low);
  if (low > 0) define("HIGH_N", c.tile_n - low);
  for (const auto& [part, columns] : {std::pair{"LOW_REGS", low}, {"HIGH_REGS", c.tile_n - low}}) {
    if (low == 0) break;
    define(part, columns / 2);
    for (int i = 1; i <= 4; ++i) define(part + std::string("_PLUS_") + std::to_string(i), columns / 2 + i);
  }
  // 65,536 registers over (consumers + 1) warpgroups of 128 threads, in steps of 8.
  define("REGISTERS_PRODUCER", c.consumers == 3 ? 32 : 40);
  define("REGISTERS_CONSUMER", c.consumers == 3 ? 160 : 232);
}

void plan_mma(Plan& plan, const GpuTarget& target, Defines& define) {
  const Config& c = plan.config;
  const Storage& s = plan.storage;
  const WarpGrid warps = warp_grid(c);
  plan.source = "tiled.cu";
  plan.kernel = "det_gemm_tiled";
  plan.architecture = "sm_" + std::to_string(target.sm_major) + std::to_string(target.sm_minor);
  plan.block_threads = warps.m * warps.n * 32;
  plan.tiles_m = ceil_div(plan.roles.m, c.tile_m);
  plan.tiles_n = ceil_div(plan.roles.n, c.tile_n);
  plan.grid_limit = plan.tiles_m * plan.tiles_n;
  define("TILE_M", c.tile_m);
  define("TILE_N", c.tile_n);
  define("TILE_K", c.tile_k);
  define("STAGES", c.stages);
  define("WARPS_M", warps.m);
  define("WARPS_N", warps.n);
  define("X_KMAJOR", plan.roles.x_k_contiguous);
  define("Y_KMAJOR", plan.roles.y_k_contiguous);
  define("OUT_FP32", plan.roles.out == OutType::Fp32);
  define("X_VECTORS", s.align_x % 16 == 0 && s.stride_x % 8 == 0);
  define("Y_VECTORS", s.align_y % 16 == 0 && s.stride_y % 8 == 0);
  define("CHUNK_BLOCKS", plan.shape.chunk / c.tile_k);
  define("RESUMED", plan.shape.resumed);
}

void plan_plain(Plan& plan, const GpuTarget& target, Defines& define) {
  plan.source = "plain.cu";
  plan.kernel = "det_gemm_plain";
  plan.architecture = "sm_" + std::to_string(target.sm_major) + std::to_string(target.sm_minor);
  plan.block_threads = 256;
  plan.tiles_m = ceil_div(plan.roles.m, 16);
  plan.tiles_n = ceil_div(plan.roles.n, 8);
  plan.grid_limit = ceil_div(plan.tiles_m * plan.tiles_n, 8);
  define("X_KMAJOR", plan.roles.x_k_contiguous);
  define("Y_KMAJOR", plan.roles.y_k_contiguous);
  define("OUT_FP32", plan.roles.out == OutType::Fp32);
  define("CHUNK", plan.shape.chunk);
  define("RESUMED", plan.shape.resumed);
}

}  // namespace

Storage dense_storage(const Canonical& shape) {
  return {.stride_x = dense_stride_x(shape), .stride_y = dense_stride_y(shape), .stride_out = shape.n};
}

Result<Plan> make_plan(const Canonical& shape, const Storage& storage, const Config& config, const GpuTarget& target) {
  AMK_TRY(base, numeric_class_of(target.sm_major, target.sm_minor));
  const RuleInput input{shape, storage, config, target};
  for (const Rule& rule : rules()) {
    if (rule.holds(input)) continue;
    return fail(ErrorKind::Rejected, rule.name + ": " + rule.reason,
                {{"rule", rule.name},
                 {"witness",
                  {{"shape", {shape.m, shape.n, shape.k}},
                   {"config", to_json(config)},
                   {"shared_bytes", shared_bytes(config, roles_of(shape, config.swap))},
                   {"shared_bytes_limit", target.smem_optin_bytes},
                   {"accumulator_registers", accumulator_registers(config, shape.chunk > 0)}}}});
  }
  Plan plan;
  plan.shape = shape;
  plan.roles = roles_of(shape, config.swap);
  plan.storage = storage;
  plan.config = config;
  plan.numeric = base;
  if (shape.chunk > 0) {
    AMK_TRY(numeric, chunked(base, shape.chunk));
    plan.numeric = numeric;
  }
  plan.smem_bytes = shared_bytes(config, plan.roles);
  plan.k_blocks = ceil_div(shape.k, config.tile_k);
  const int element = shape.out == OutType::Bf16 ? 2 : 4;
  plan.wide_stores = storage.stride_out % 2 == 0 && storage.align_out % (2 * element) == 0;
  Defines define(plan);
  if (config.path == Path::Wgmma)
    plan_wgmma(plan, define);
  else if (config.path == Path::Mma)
    plan_mma(plan, target, define);
  else
    plan_plain(plan, target, define);
  if (plan.tiles_m * plan.tiles_n * plan.cluster > kMaxTiles) {
    return fail(ErrorKind::Rejected, "tile_count: the output has more than 2^26 tiles; larger tiles are needed",
                {{"rule", "tile_count"}, {"witness", {{"tiles_m", plan.tiles_m}, {"tiles_n", plan.tiles_n}}}});
  }
  return plan;
}

Block tile_of(const Plan& plan, std::int64_t index, int rank) {
  const Config& c = plan.config;
  const bool plain = c.path == Path::Plain;
  const int tile_m = plain ? 16 : c.tile_m, tile_n = plain ? 8 : c.tile_n;
  RasterTile tile;
  if (plain) {
    tile = {static_cast<unsigned>(index / plan.tiles_n), static_cast<unsigned>(index % plan.tiles_n)};
  } else {
    tile = raster_tile(static_cast<unsigned>(index), static_cast<unsigned>(plan.tiles_m), static_cast<unsigned>(plan.tiles_n),
                       static_cast<unsigned>(c.group), c.raster == RasterAlong::N);
  }
  Block block{(static_cast<std::int64_t>(tile.m) * c.cluster_m + rank % c.cluster_m) * tile_m,
              (static_cast<std::int64_t>(tile.n) * c.cluster_n + rank / c.cluster_m) * tile_n, tile_m, tile_n};
  block.rows = std::min<std::int64_t>(block.rows, plan.roles.m - block.row);
  block.cols = std::min<std::int64_t>(block.cols, plan.roles.n - block.col);
  if (c.swap) {
    std::swap(block.row, block.col);
    std::swap(block.rows, block.cols);
  }
  return block;
}

std::vector<std::vector<Block>> replay(const Plan& plan, std::int64_t blocks) {
  std::vector<std::vector<Block>> out(static_cast<std::size_t>(std::max<std::int64_t>(blocks, 0)));
  const std::int64_t per_step = plan.config.path == Path::Plain ? 8 : 1;  // tiles that one block of the plain kernel computes at once
  const std::int64_t groups = blocks / plan.cluster, total = plan.tiles_m * plan.tiles_n;
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t first = g * per_step; first < total; first += groups * per_step) {
      for (std::int64_t index = first; index < std::min(first + per_step, total); ++index) {
        for (int rank = 0; rank < plan.cluster; ++rank) {
          const Block block = tile_of(plan, index, rank);
          if (block.rows > 0 && block.cols > 0) out[static_cast<std::size_t>(g * plan.cluster + rank)].push_back(block);
        }
      }
    }
  }
  return out;
}

SearchSpace space_of(const Canonical& shape, const Storage& storage, const GpuTarget& target, const Config& defaults) {
  SearchSpace space = knob_space(defaults);
  const RuleInput input{shape, storage, defaults, target};
  for (Knob& knob : space.knobs) {
    const Json chosen = knob.choices[knob.default_index];
    std::erase_if(knob.choices, [&](const Json& choice) { return choice != chosen && !choice_can_serve(input, knob.name, choice); });
    knob.default_index = static_cast<std::size_t>(std::find(knob.choices.begin(), knob.choices.end(), chosen) - knob.choices.begin());
  }
  const auto config_at = std::make_shared<const ConfigReader>(space);
  for (const Rule& rule : rules()) {
    space.constraints.push_back({rule.name, rule.reason,
                                 [=, holds = rule.holds](const Point& point) {
                                   return holds({shape, storage, (*config_at)(point), target});
                                 },
                                 space.places_of(rule.reads)});
  }
  space.valid = ValidPoints::of(space);  // a few in a hundred combinations are
  return space;
}

Json to_json(const Plan& plan) {
  Json json = {{"schema", "amk.det_gemm.plan/1"},
               {"m", plan.shape.m},
               {"n", plan.shape.n},
               {"k", plan.shape.k},
               {"x_k_contiguous", plan.shape.x_k_contiguous},
               {"y_k_contiguous", plan.shape.y_k_contiguous},
               {"out", to_string(plan.shape.out)},
               {"numeric_class", plan.numeric.id},
               {"numeric_class_verified", plan.numeric.verified},
               {"config", to_json(plan.config)},
               {"source", plan.source},
               {"kernel", plan.kernel},
               {"architecture", plan.architecture},
               {"block_threads", plan.block_threads},
               {"cluster", plan.cluster},
               {"shared_bytes", plan.smem_bytes},
               {"tiles", {plan.tiles_m, plan.tiles_n}},
               {"k_blocks", plan.k_blocks},
               {"grid_limit", plan.grid_limit}};
  for (const auto& [name, value] : plan.defines) json["defines"][name] = value;
  const auto map = [](const MapSpec& m) {
    Json out{{"inner", m.inner}, {"outer", m.outer}, {"stride_bytes", m.stride_bytes}, {"box", {m.box_inner, m.box_outer}}};
    out["swizzle_bytes"] = m.swizzle_bytes;
    out["fetch_bytes"] = m.fetch_bytes;
    return out;
  };
  if (plan.map_x) json["maps"]["x"] = map(*plan.map_x);
  if (plan.map_y) json["maps"]["y"] = map(*plan.map_y);
  if (plan.map_y_tail) json["maps"]["y_tail"] = map(*plan.map_y_tail);
  if (plan.map_out) json["maps"]["out"] = map(*plan.map_out);
  return json;
}

}  // namespace amk::det_gemm
