#include "kernels/det_gemm/rules.h"

#include <algorithm>

#include "core/base/integer.h"

namespace amk::det_gemm {
namespace {

constexpr std::int64_t kAlignmentSlack = 1024;  // dynamic shared memory starts on 16 bytes; swizzled tiles want 1024

bool wgmma(const RuleInput& in) { return in.config.path == Path::Wgmma; }
bool mma(const RuleInput& in) { return in.config.path == Path::Mma; }

// The value that a knob keeps where its path ignores it, so that one schedule has one id.
Config neutral(const Config& c) {
  Config n = c;
  if (c.path == Path::Wgmma) {
    if (c.epilogue != Epilogue::Tma) n.store_buffers = 2;
    return n;
  }
  const Config plain{.path = c.path,
                     .tile_m = 16,
                     .tile_n = 8,
                     .tile_k = 32,
                     .stages = 2,
                     .consumers = 1,
                     .cluster_m = 1,
                     .cluster_n = 1,
                     .swap = false,
                     .raster = RasterAlong::M,
                     .group = 1,
                     .epilogue = Epilogue::Direct,
                     .store_buffers = 2,
                     .l2_x = L2Hint::Normal,
                     .l2_y = L2Hint::Normal,
                     .l2_fetch = 256,
                     .producer = Producer::Warpgroup,
                     .overlap = false,
                     .defer = false};
  if (c.path == Path::Plain) return plain;
  n.consumers = plain.consumers;
  n.cluster_m = n.cluster_n = 1;
  n.swap = false;
  n.epilogue = plain.epilogue;
  n.store_buffers = plain.store_buffers;
  n.l2_x = n.l2_y = L2Hint::Normal;
  n.l2_fetch = plain.l2_fetch;
  n.producer = plain.producer;
  n.overlap = n.defer = false;
  return n;
}

// 16-byte stores reach every element.
bool wide_output(const RuleInput& in) {
  const int element = in.shape.out == OutType::Bf16 ? 2 : 4;
  return in.storage.stride_out * element % 16 == 0 && in.storage.align_out % 16 == 0 && in.shape.n % 8 == 0;
}

bool slice_ok(int lines, bool k_major, int tile_k, int slices) { return (k_major ? lines : tile_k) % (8 * slices) == 0; }

const std::vector<Rule> kRules = {
    {"unused_knob",
     "a knob that the chosen path ignores stays at its neutral value (mma: consumers 1, cluster 1×1, epilogue direct, store_buffers 2, producer "
     "warpgroup, overlap and defer false, l2.fetch 256; plain: tile 16×8×32, stages 2 as well)",
     {"epilogue", "store_buffers"},
     [](const RuleInput& in) { return in.config == neutral(in.config); }},
    {"architecture",
     "wgmma and TMA exist on sm_90 only; mma.sync with bf16 on sm_80 and newer",
     {},
     [](const RuleInput& in) { return wgmma(in) ? in.target.sm_major == 9 && in.target.sm_minor == 0 : in.target.sm_major >= 8; }},
    {"extent",
     "rows and columns are 32-bit in the kernels: at most 2^31 - 1 each, K likewise",
     {},
     [](const RuleInput& in) {
       return std::max({in.shape.m, in.shape.n, in.shape.k}) <= 0x7FFFFFFF;
     }},
    {"memory",
     "operands and output fit the device's memory",
     {},
     [](const RuleInput& in) { return in.target.memory_bytes == 0 || compulsory_bytes(in.shape) <= in.target.memory_bytes; }},
    {"resumed",
     "a resumed chain goes on from one sum an element: no chunks (those take their running total as it is)",
     {},
     [](const RuleInput& in) { return !in.shape.resumed || in.shape.chunk == 0; }},
    {"empty_contraction",
     "K = 0 leaves nothing to copy: path mma or plain writes the zeros",
     {},
     [](const RuleInput& in) { return !wgmma(in) || in.shape.k > 0; }},
    {"tma_alignment",
     "TMA wants bases on 16 bytes and strides of 16 bytes: other operands need path mma",
     {},
     [](const RuleInput& in) {
       return !wgmma(in) ||
              (in.storage.align_x % 16 == 0 && in.storage.align_y % 16 == 0 && in.storage.stride_x % 8 == 0 && in.storage.stride_y % 8 == 0);
     }},
    {"wgmma_tile",
     "wgmma takes 64 rows a warpgroup: tile.m is a multiple of 64·consumers, tile.k of 64",
     {"tile.m", "tile.k", "consumers"},
     [](const RuleInput& in) { return !wgmma(in) || (in.config.tile_m % (64 * in.config.consumers) == 0 && in.config.tile_k % 64 == 0); }},
    {"mma_tile",
     "mma.sync path: tile.m a multiple of 16 (of 32 from 64 rows), tile.n 16, 32, 64, 128 or 256, tile.k at most 64",
     {"tile.m", "tile.n", "tile.k"},
     [](const RuleInput& in) {
       if (!mma(in)) return true;
       const WarpGrid warps = warp_grid(in.config);
       return in.config.tile_m % (16 * warps.m) == 0 && in.config.tile_n % (16 * warps.n) == 0 && in.config.tile_k <= 64;
     }},
    {"registers",
     "accumulators of one thread fit its register budget (192 of 232 with one or two consumers, 208 with running totals; 128 of 160 with three; mma "
     "128)",
     {"tile.m", "tile.n", "consumers"},
     [](const RuleInput& in) {
       const bool chunks = in.shape.chunk > 0;
       return accumulator_registers(in.config, chunks) <= (mma(in) || in.config.consumers == 3 ? 128 : chunks ? 208 : 192);
     }},
    {"three_consumers",
     "three consumers and a producer are compiled for 128 registers a thread: instructions of at most 192 columns",
     {"tile.n", "consumers"},
     [](const RuleInput& in) { return !wgmma(in) || in.config.consumers < 3 || in.config.tile_n <= 192; }},
    {"producer_warp",
     "one producer warp leaves registers as they are: at most 192 accumulators a thread with one consumer, 128 with two, 64 with three (running "
     "totals "
     "count)",
     {"tile.m", "tile.n", "consumers", "producer"},
     [](const RuleInput& in) {
       const int most = in.config.consumers == 1 ? 192 : in.config.consumers == 2 ? 128 : 64;
       return in.config.producer == Producer::Warpgroup || accumulator_registers(in.config, in.shape.chunk > 0) <= most;
     }},
    {"deferred_stores",
     "deferred stores keep part of a tile's bf16 outputs in registers beside the next tile's accumulators: bf16 out, one chain from zero over at "
     "least "
     "two stages, not swapped, epilogue tma or staged, tile.n a multiple of 64, a producer warpgroup, 64 rows for each of at most two consumers",
     {"tile.m", "tile.n", "tile.k", "consumers", "swap", "epilogue", "producer", "defer"},
     [](const RuleInput& in) {
       const Config& c = in.config;
       return !c.defer || (in.shape.out == OutType::Bf16 && in.shape.chunk == 0 && !in.shape.resumed && in.shape.k > c.tile_k && !c.swap &&
                           c.epilogue != Epilogue::Direct && c.tile_n % 64 == 0 && c.producer == Producer::Warpgroup && c.consumers <= 2 &&
                           c.tile_m == 64 * c.consumers);
     }},
    {"shared_memory",
     "stages and staging buffers fit the shared memory of one block",
     {"tile.m", "tile.n", "tile.k", "stages", "consumers", "swap", "epilogue", "store_buffers"},
     [](const RuleInput& in) { return shared_bytes(in.config, roles_of(in.shape, in.config.swap)) <= in.target.smem_optin_bytes; }},
    {"cluster_size",
     "at most 8 blocks a cluster",
     {"cluster.m", "cluster.n"},
     [](const RuleInput& in) { return in.config.cluster_m * in.config.cluster_n <= 8; }},
    {"cluster_slices",
     "each block of a cluster copies whole 8-line atoms of the shared tile",
     {"tile.m", "tile.n", "tile.k", "cluster.m", "cluster.n", "swap"},
     [](const RuleInput& in) {
       if (!wgmma(in)) return true;
       const Canonical roles = roles_of(in.shape, in.config.swap);
       return slice_ok(in.config.tile_m, roles.x_k_contiguous, in.config.tile_k, in.config.cluster_n) &&
              slice_ok(in.config.tile_n, roles.y_k_contiguous, in.config.tile_k, in.config.cluster_m);
     }},
    {"cluster_cover",
     "a cluster covers no more tiles than the output has",
     {"tile.m", "tile.n", "cluster.m", "cluster.n", "swap"},
     [](const RuleInput& in) {
       const Canonical roles = roles_of(in.shape, in.config.swap);
       return in.config.cluster_m <= std::max<std::int64_t>(1, ceil_div(roles.m, in.config.tile_m)) &&
              in.config.cluster_n <= std::max<std::int64_t>(1, ceil_div(roles.n, in.config.tile_n));
     }},
    {"raster_range",
     "the walk over the tiles counts in 32 bits: raster.group times the tiles across a band is below 2^32",
     {"tile.m", "tile.n", "cluster.m", "cluster.n", "swap", "raster.along", "raster.group"},
     [](const RuleInput& in) {
       if (in.config.path == Path::Plain) return true;
       const Canonical roles = roles_of(in.shape, in.config.swap);
       const bool along_n = in.config.raster == RasterAlong::N;
       const std::int64_t across = along_n ? ceil_div(ceil_div(roles.m, in.config.tile_m), in.config.cluster_m)
                                           : ceil_div(ceil_div(roles.n, in.config.tile_n), in.config.cluster_n);
       return across * in.config.group <= 0xFFFFFFFF;
     }},
    {"tma_epilogue",
     "the tma epilogue stores bf16 in 64-column boxes: tile.n a multiple of 64, no swap, output base and stride multiples of 16 bytes",
     {"tile.n", "swap", "epilogue"},
     [](const RuleInput& in) {
       if (!wgmma(in) || in.config.epilogue != Epilogue::Tma) return true;
       return in.shape.out == OutType::Bf16 && !in.config.swap && in.config.tile_n % 64 == 0 && in.storage.stride_out % 8 == 0 &&
              in.storage.align_out % 16 == 0;
     }},
    {"staged_epilogue",
     "the staged epilogue stores 16 bytes at once: output base and stride multiples of 16 bytes, n a multiple of 8; with swap bf16 only",
     {"swap", "epilogue"},
     [](const RuleInput& in) {
       return !wgmma(in) || in.config.epilogue != Epilogue::Staged || (wide_output(in) && !(in.config.swap && in.shape.out == OutType::Fp32));
     }},
    {"chunk_blocks",
     "a chunk of the chunked class is whole stages: chunk is a multiple of tile.k",
     {"tile.k"},
     [](const RuleInput& in) { return in.config.path == Path::Plain || in.shape.chunk % in.config.tile_k == 0; }},
};

}  // namespace

const std::vector<Rule>& rules() { return kRules; }

bool choice_can_serve(const RuleInput& in, std::string_view knob, const Json& choice) {
  const Path path = in.config.path;
  if (knob == "path") return false;  // the caller keeps the defaults' own
  if (path == Path::Plain) return false;
  if (knob == "raster.group" || knob == "raster.along" || knob == "stages") return true;
  const int number = choice.is_number_integer() ? choice.get<int>() : 0;
  if (path == Path::Mma) {
    if (knob == "tile.m") return number <= 128;
    if (knob == "tile.n") return number == 16 || number == 32 || number == 64 || number == 128 || number == 256;
    return knob == "tile.k" && number <= 64;
  }
  if (knob == "tile.m") return number % 64 == 0;
  // The deepest stages pay for few tokens only; elsewhere they would be a quarter of all points, nearly none of which fits.
  if (knob == "tile.k" && number == 256 && std::min(in.shape.m, in.shape.n) > 64) return false;
  if (knob == "tile.k") return number % 64 == 0 && (in.shape.chunk == 0 || in.shape.chunk % number == 0);
  if (knob == "epilogue") {
    if (choice == "staged") return wide_output(in);
    return choice != "tma" || (in.shape.out == OutType::Bf16 && in.storage.stride_out % 8 == 0 && in.storage.align_out % 16 == 0);
  }
  return true;
}

Canonical roles_of(const Canonical& shape, bool swap) {
  if (!swap) return shape;
  Canonical roles = shape;
  std::swap(roles.m, roles.n);
  std::swap(roles.x_k_contiguous, roles.y_k_contiguous);
  return roles;
}

WarpGrid warp_grid(const Config& config) { return {config.tile_m >= 64 ? 2 : 1, std::clamp(config.tile_n / 32, 1, 4)}; }

int y_lines(const Config& c, const Canonical& roles) {
  if (roles.y_k_contiguous) return c.tile_n;
  return c.tile_n <= 32 ? 32 : (c.tile_n + 63) / 64 * 64;
}

// Measured: 208 columns 0.925 of cuBLAS in parts, 0.90 at once; 128 and 176 lose, as each part reads the rows again.
int first_added_columns(const Config& c, const Canonical& shape) {
  return shape.chunk > 0 && c.tile_n >= 192 ? (c.tile_n / 2 + 32) / 64 * 64 : 0;  // about half, in whole swizzled rows
}

int accumulator_registers(const Config& c, bool chunked) {
  if (c.path == Path::Plain) return 4;
  const int copies = chunked ? 2 : 1;
  if (c.path == Path::Wgmma) return c.tile_m / std::max(64 * c.consumers, 64) * c.tile_n / 2 * copies;
  const WarpGrid warps = warp_grid(c);
  return c.tile_m * c.tile_n / (warps.m * warps.n * 32) * copies;
}

std::int64_t shared_bytes(const Config& c, const Canonical& roles) {
  if (c.path == Path::Plain) return 0;
  if (c.path == Path::Mma) {  // rows padded by 16 bytes
    const auto tile = [&](bool k_major, int lines) { return k_major ? lines * (c.tile_k * 2 + 16) : c.tile_k * (lines * 2 + 16); };
    return static_cast<std::int64_t>(c.stages) * (tile(roles.x_k_contiguous, c.tile_m) + tile(roles.y_k_contiguous, c.tile_n));
  }
  const std::int64_t stage = std::int64_t{c.tile_m + y_lines(c, roles)} * c.tile_k * 2;
  // epilogue.cuh: boxes of 16×64 bf16; or 16 rows of 144 bytes, or 8 of 48 when swapped.
  const std::int64_t per_warp = c.epilogue == Epilogue::Tma      ? c.store_buffers * 16 * 64 * 2
                                : c.epilogue == Epilogue::Direct ? 0
                                : c.swap                         ? 8 * 48
                                                                 : 16 * 144;
  const std::int64_t staging = c.consumers * 4 * per_warp;
  return c.stages * stage + staging + c.stages * 16 + kAlignmentSlack;
}

}  // namespace amk::det_gemm
