#include "tests/gpu/det_gemm/cases.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace amk::det_gemm::gpu_test {
namespace {

constexpr std::size_t kGuardBytes = 4096;
constexpr std::uint8_t kGuardByte = 0xA5;

std::int64_t alignment_of(std::int64_t offset_elements, std::int64_t element_bytes) {
  std::int64_t alignment = 256;
  while (alignment > 1 && offset_elements * element_bytes % alignment != 0) alignment /= 2;
  return alignment;
}

Config wgmma(int tile_m, int tile_n, int tile_k, int stages, int consumers, int cluster_m, int cluster_n, Epilogue epilogue, bool swap = false) {
  Config c;
  c.tile_m = tile_m;
  c.tile_n = tile_n;
  c.tile_k = tile_k;
  c.stages = stages;
  c.consumers = consumers;
  c.cluster_m = cluster_m;
  c.cluster_n = cluster_n;
  c.epilogue = epilogue;
  c.swap = swap;
  return c;
}

Config mma(int tile_m, int tile_n, int tile_k, int stages) {
  Config c = plain_kernel_config();
  c.path = Path::Mma;
  c.tile_m = tile_m;
  c.tile_n = tile_n;
  c.tile_k = tile_k;
  c.stages = stages;
  c.group = 4;
  return c;
}

}  // namespace

const std::vector<Config>& few_configs() {
  static const std::vector<Config> configs = [] {
    Config overlapped = wgmma(64, 64, 64, 4, 1, 1, 1, Epilogue::Direct);
    overlapped.overlap = true;
    overlapped.raster = RasterAlong::N;
    Config shared = wgmma(128, 16, 64, 6, 2, 1, 1, Epilogue::Direct, true);
    shared.overlap = true;  // two launches on one SM
    shared.producer = Producer::Warp;
    const Config shared_columns = wgmma(128, 96, 64, 4, 2, 2, 1, Epilogue::Direct);
    return std::vector<Config>{wgmma(128, 256, 64, 4, 2, 2, 1, Epilogue::Direct),
                               wgmma(128, 128, 64, 6, 2, 1, 2, Epilogue::Direct),
                               overlapped,
                               shared,
                               shared_columns,
                               wgmma(64, 16, 64, 8, 1, 1, 1, Epilogue::Direct, true),
                               mma(64, 64, 32, 3),
                               mma(16, 32, 64, 2),
                               plain_kernel_config()};
  }();
  return configs;
}

const std::vector<Config>& all_configs() {
  static const std::vector<Config> configs = [] {
    std::vector<Config> list = few_configs();
    list.push_back(wgmma(128, 256, 64, 4, 2, 2, 1, Epilogue::Tma));
    list.push_back(wgmma(128, 128, 128, 3, 2, 1, 1, Epilogue::Tma));
    list.push_back(wgmma(256, 128, 64, 3, 2, 1, 2, Epilogue::Tma));
    list.push_back(wgmma(64, 256, 64, 4, 1, 2, 2, Epilogue::Tma));
    list.push_back(wgmma(192, 128, 64, 3, 3, 1, 1, Epilogue::Tma));
    list.push_back(wgmma(192, 64, 64, 4, 3, 1, 1, Epilogue::Tma));
    list.push_back(wgmma(128, 192, 64, 4, 2, 1, 1, Epilogue::Tma));
    list.push_back(wgmma(128, 208, 64, 4, 2, 1, 1, Epilogue::Staged));
    list.push_back(wgmma(64, 32, 64, 8, 1, 1, 2, Epilogue::Staged));
    list.push_back(wgmma(128, 112, 64, 4, 2, 1, 1, Epilogue::Staged));
    list.push_back(wgmma(64, 24, 64, 4, 1, 1, 1, Epilogue::Staged));
    list.push_back(wgmma(64, 32, 128, 4, 1, 1, 1, Epilogue::Staged));
    list.push_back(wgmma(64, 32, 256, 4, 1, 1, 1, Epilogue::Staged));
    list.back().producer = Producer::Warp;
    list.push_back(wgmma(128, 32, 64, 4, 2, 2, 1, Epilogue::Staged));
    list.back().producer = Producer::Warp;
    list.push_back(wgmma(64, 112, 64, 6, 1, 1, 1, Epilogue::Direct));
    list.back().producer = Producer::Warp;
    list.push_back(wgmma(128, 256, 64, 4, 2, 2, 1, Epilogue::Staged));
    list.push_back(wgmma(128, 24, 64, 4, 2, 1, 1, Epilogue::Staged, true));
    list.push_back(wgmma(64, 112, 64, 4, 1, 1, 1, Epilogue::Direct));
    list.push_back(wgmma(128, 104, 64, 4, 2, 4, 1, Epilogue::Direct));
    list.push_back(wgmma(128, 64, 64, 4, 2, 2, 1, Epilogue::Direct, true));
    list.push_back(wgmma(64, 8, 128, 4, 1, 1, 1, Epilogue::Direct, true));
    for (Config deferred : {wgmma(128, 256, 64, 4, 2, 1, 1, Epilogue::Tma), wgmma(128, 128, 64, 4, 2, 2, 1, Epilogue::Staged),
                            wgmma(64, 64, 64, 4, 1, 1, 1, Epilogue::Tma)}) {
      deferred.defer = true;
      list.push_back(deferred);
    }
    list.push_back(mma(128, 128, 32, 4));
    list.push_back(mma(128, 64, 32, 2));
    list.push_back(mma(32, 256, 32, 3));
    for (Config& c : list)
      if (c.cluster_m == 4) c.l2_x = L2Hint::EvictLast, c.l2_y = L2Hint::EvictFirst;
    return list;
  }();
  return configs;
}

Operands make_operands(const Canonical& shape, std::uint64_t seed, int spread, std::int64_t extra) {
  Operands o;
  o.shape = shape;
  o.storage = dense_storage(shape);
  o.storage.stride_x += extra;
  o.storage.stride_y += extra;
  o.storage.stride_out += extra;
  Rng rng(seed);
  const auto fill = [&](std::vector<std::uint16_t>& values, std::int64_t lines, std::int64_t stride) {
    values.resize(static_cast<std::size_t>(lines * stride));
    for (auto& v : values) {
      const int shift = spread == 0 ? 0 : static_cast<int>(rng.below(static_cast<std::uint64_t>(2 * spread + 1))) - spread;
      v = float_to_bf16(std::ldexp(static_cast<float>(rng.normal()), shift));
    }
  };
  fill(o.x, shape.x_k_contiguous ? shape.m : shape.k, o.storage.stride_x);
  fill(o.y, shape.y_k_contiguous ? shape.n : shape.k, o.storage.stride_y);
  return o;
}

void misalign(Operands& o, std::int64_t elements) {
  o.offset_x = o.offset_y = o.offset_out = elements;
  o.storage.align_x = o.storage.align_y = alignment_of(elements, 2);
  o.storage.align_out = alignment_of(elements, o.shape.out == OutType::Bf16 ? 2 : 4);
}

Result<OnDevice> on_device(const Operands& o, const cuda::Stream& stream) {
  AMK_TRY(x, cuda::Memory::allocate(o.x.size() * 2));
  AMK_TRY(y, cuda::Memory::allocate(o.y.size() * 2));
  AMK_TRY(out, cuda::Memory::allocate(static_cast<std::size_t>(o.shape.m * o.shape.n) * 2));
  AMK_CHECK(cuda::copy_to_device(x.pointer(), o.x.data(), x.bytes(), stream));
  AMK_CHECK(cuda::copy_to_device(y.pointer(), o.y.data(), y.bytes(), stream));
  AMK_CHECK(cuda::fill_u8(out.pointer(), 0xFF, out.bytes(), stream));
  return OnDevice{std::move(x), std::move(y), std::move(out)};
}

Result<std::vector<std::uint32_t>> run_case(Runner& runner, const Operands& o, const Config& config, int max_blocks,
                                            const std::vector<float>& total_in) {
  AMK_TRY(plan, make_plan(o.shape, o.storage, config, runner.target()));
  AMK_TRY(gemm, runner.compile(plan));
  const cuda::Stream& stream = runner.stream();
  const std::size_t element = o.shape.out == OutType::Bf16 ? 2 : 4;
  const auto m = static_cast<std::size_t>(o.shape.m), n = static_cast<std::size_t>(o.shape.n),
             stride = static_cast<std::size_t>(o.storage.stride_out);
  const std::size_t out_bytes = m * stride * element, offset = static_cast<std::size_t>(o.offset_out) * element;
  AMK_TRY(x, cuda::Memory::allocate(o.x.size() * 2 + 512));
  AMK_TRY(y, cuda::Memory::allocate(o.y.size() * 2 + 512));
  AMK_TRY(out, cuda::Memory::allocate(out_bytes + offset + 2 * kGuardBytes));
  AMK_TRY(total, cuda::Memory::allocate(total_in.size() * 4));
  Buffers buffers{x.pointer() + static_cast<std::uint64_t>(o.offset_x) * 2, y.pointer() + static_cast<std::uint64_t>(o.offset_y) * 2,
                  out.pointer() + kGuardBytes + offset, total_in.empty() ? 0 : total.pointer()};
  AMK_CHECK(cuda::copy_to_device(buffers.x, o.x.data(), o.x.size() * 2, stream));
  AMK_CHECK(cuda::copy_to_device(buffers.y, o.y.data(), o.y.size() * 2, stream));
  if (!total_in.empty()) AMK_CHECK(cuda::copy_to_device(total.pointer(), total_in.data(), total_in.size() * 4, stream));
  AMK_CHECK(cuda::fill_u8(out.pointer(), kGuardByte, out.bytes(), stream));
  AMK_CHECK(gemm->launch(buffers, stream.handle(), max_blocks));
  std::vector<std::uint8_t> bytes(out.bytes());
  AMK_CHECK(cuda::copy_to_host(bytes.data(), out.pointer(), bytes.size(), stream));
  AMK_CHECK(runner.synchronize());

  std::vector<std::uint32_t> result(m * n);
  std::size_t guard_writes = 0;
  std::vector<char> inside(bytes.size(), 0);
  for (std::size_t r = 0; r < m; ++r) {
    for (std::size_t c = 0; c < n; ++c) {
      const std::size_t at = kGuardBytes + offset + (r * stride + c) * element;
      std::memset(&inside[at], 1, element);
      if (element == 4) {
        std::memcpy(&result[r * n + c], &bytes[at], 4);
      } else {
        std::uint16_t half = 0;
        std::memcpy(&half, &bytes[at], 2);
        result[r * n + c] = static_cast<std::uint32_t>(half) << 16;
      }
    }
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) guard_writes += !inside[i] && bytes[i] != kGuardByte;
  if (guard_writes > 0) return fail(ErrorKind::Internal, std::to_string(guard_writes) + " bytes outside the output were written");
  return result;
}

std::vector<std::uint32_t> expected(const Operands& o, const NumericClass& numeric) {
  std::vector<std::uint32_t> bits = oracle_gemm(o.inputs(), numeric);
  if (o.shape.out == OutType::Bf16) {
    const auto halves = round_to_bf16(bits);
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint32_t>(halves[i]) << 16;
  }
  return bits;
}

std::string describe(const Canonical& s, const Config& c) {
  std::string text = std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k) + (s.x_k_contiguous ? " x:k" : " x:m") +
                     (s.y_k_contiguous ? " y:k" : " y:n") + (s.out == OutType::Fp32 ? " fp32" : "");
  if (s.chunk > 0) text += " chunk" + std::to_string(s.chunk);
  const char* paths[] = {"wgmma", "mma", "plain"};
  return text + " by " + paths[static_cast<int>(c.path)] + (c.swap ? " swap " : " ") + std::to_string(c.tile_m) + "x" + std::to_string(c.tile_n) +
         "x" + std::to_string(c.tile_k) + " s" + std::to_string(c.stages) + " c" + std::to_string(c.cluster_m) + "x" + std::to_string(c.cluster_n) +
         (c.producer == Producer::Warp ? " warp" : "") + (c.overlap ? " overlap" : "");
}

void prebuild(Runner& runner, const std::vector<std::pair<Canonical, Storage>>& shapes, const std::vector<Config>& configs) {
  const auto resources = find_resources();
  if (!resources) return;
  std::vector<Plan> plans;
  for (const auto& [shape, storage] : shapes)
    for (const Config& config : configs)
      if (auto plan = make_plan(shape, storage, config, runner.target())) plans.push_back(std::move(*plan));
  (void)Runner::prebuild(plans, *resources, cache_folder(), 0);  // a failure shows again, with its case, when the case runs
}

std::filesystem::path cache_folder() {
  const char* folder = std::getenv("AMK_BUILD_CACHE");
  return folder != nullptr ? std::filesystem::path(folder) : std::filesystem::temp_directory_path() / "amk-gemm-cache";
}

}  // namespace amk::det_gemm::gpu_test
