#include "kernels/det_gemm/defaults.h"

#include <algorithm>

#include "kernels/det_gemm/cost_model.h"

namespace amk::det_gemm {
namespace {

bool wide_output(const Canonical& shape, const Storage& storage) {
  const int element = shape.out == OutType::Bf16 ? 2 : 4;
  return storage.stride_out * element % 16 == 0 && storage.align_out % 16 == 0 && shape.n % 8 == 0;
}

Config wgmma_default(const Canonical& shape, const Storage& storage) {
  Config c;
  c.tile_m = shape.m <= 64 ? 64 : 128;
  c.tile_n = 128;
  c.tile_k = 64;
  c.stages = 4;
  c.consumers = c.tile_m / 64;
  c.cluster_m = c.cluster_n = 1;
  c.group = 8;
  c.epilogue = wide_output(shape, storage) ? Epilogue::Staged : Epilogue::Direct;
  if (shape.chunk > 0 && c.consumers == 1) c.tile_n = 64;
  return c;
}

Config mma_default(const Canonical& shape) {
  Config c = plain_kernel_config();
  c.path = Path::Mma;
  c.tile_m = shape.m <= 32 ? 16 : 64;
  c.tile_n = 64;
  c.tile_k = 32;
  c.stages = 3;
  c.group = 8;
  return c;
}

}  // namespace

Config plain_kernel_config() {
  Config c;
  c.path = Path::Plain;
  c.tile_m = 16;
  c.tile_n = 8;
  c.tile_k = 32;
  c.stages = 2;
  c.consumers = c.cluster_m = c.cluster_n = 1;
  c.group = 1;
  c.epilogue = Epilogue::Direct;
  return c;
}

Config default_config(const Canonical& shape, const Storage& storage, const GpuTarget& target) {
  for (const Config& c : {wgmma_default(shape, storage), mma_default(shape)}) {
    if (make_plan(shape, storage, c, target)) return c;
  }
  return plain_kernel_config();
}

std::vector<Config> candidate_configs(const Canonical& shape, const Storage& storage, const GpuTarget& target, std::size_t limit) {
  std::vector<std::pair<double, Config>> found;
  const auto consider = [&](const Config& c) {
    if (const auto plan = make_plan(shape, storage, c, target)) found.emplace_back(estimate(*plan, target).latency_us, c);
  };
  const bool wide = wide_output(shape, storage);
  const bool few = std::min(shape.m, shape.n) <= 256;  // weights are streamed: tokens stay in L2, and a miss fetches no neighbour's lines
  for (const bool swap : {false, true}) {
    for (const int tile_m : {64, 128, 256}) {
      for (const int tile_n : {8, 16, 32, 64, 112, 128, 176, 192, 208, 256}) {
        if (shape.chunk == 0 && (tile_n == 176 || tile_n == 208)) continue;  // as wide as running totals leave room for
        for (const int tile_k : {64, 128}) {
          if (tile_k == 128 && tile_m != 64) continue;  // few accumulators: fewer, larger stages
          for (const int cluster : {1, 2}) {
            for (const int stages : {3, 4, 5, 6, 8, 12}) {
              Config c;
              c.tile_m = tile_m;
              c.tile_n = tile_n;
              c.tile_k = tile_k;
              c.stages = stages;
              c.consumers = tile_m == 64 ? 1 : 2;
              c.cluster_m = swap ? 1 : cluster;
              c.cluster_n = swap ? cluster : 1;
              c.swap = swap;
              c.epilogue = !wide || (swap && shape.out == OutType::Fp32)             ? Epilogue::Direct
                           : tile_n % 64 == 0 && !swap && shape.out == OutType::Bf16 ? Epilogue::Tma
                                                                                     : Epilogue::Staged;
              consider(c);
              c.defer = c.overlap = true;  // refused where outputs cannot wait
              consider(c);
              c.defer = false;
              c.producer = Producer::Warp;  // refused where accumulators are many
              c.overlap = true;
              if (few) {
                const bool tokens_left = shape.m <= shape.n;
                c.l2_x = tokens_left ? L2Hint::EvictLast : L2Hint::EvictFirst;
                c.l2_y = tokens_left ? L2Hint::EvictFirst : L2Hint::EvictLast;
                c.l2_fetch = (tokens_left ? shape.y_k_contiguous : shape.x_k_contiguous) ? 128 : 0;
              } else if (!shape.y_k_contiguous) {
                c.l2_fetch = 0;
              }
              consider(c);
            }
          }
        }
      }
    }
  }
  Config mma = mma_default(shape);
  for (const int tile : {64, 128}) {
    mma.tile_m = std::min(tile, shape.m <= 32 ? 32 : tile);
    mma.tile_n = tile;
    mma.stages = 4;
    consider(mma);
  }
  consider(default_config(shape, storage, target));
  consider(plain_kernel_config());
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Config> configs;
  for (const auto& [us, config] : found) {
    if (configs.size() == limit) break;
    if (std::find(configs.begin(), configs.end(), config) == configs.end()) configs.push_back(config);
  }
  return configs;
}

}  // namespace amk::det_gemm
