#include "kernels/det_gemm/launcher.h"

#include <algorithm>
#include <fstream>
#include <source_location>
#include <sstream>

#include "kernels/det_gemm/driver_extras.h"

namespace amk::det_gemm {
namespace {

using cuda::DevicePtr;

// Parameter structs of the kernels, field by field as in device/*.cu.
struct HopperParams {
  TensorMapBytes x, y, out, y_tail;
  DevicePtr out_pointer;
  DevicePtr total_in;
  std::int64_t out_stride;
  std::uint32_t m, n, k_blocks, tiles_m, tiles_n, group, bands_along_n, wide_stores;
};
struct TiledParams {
  DevicePtr x, y, out, total_in;
  std::int64_t m, n, k, stride_x, stride_y, stride_out;
  std::uint32_t tiles_m, tiles_n, group, bands_along_n, wide_stores;
};
struct PlainParams {
  DevicePtr x, y, out, total_in;
  std::int64_t m, n, k, stride_x, stride_y, stride_out;
};

Result<std::string> read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return fail(ErrorKind::Io, "cannot read device source " + path.string(), {{"path", path.string()}});
  return text.str();
}

// Names of the headers, in an order that does not depend on the file system's: they are part of a build's key.
Result<std::vector<std::string>> headers_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
    if (at->path().extension() == ".cuh") names.push_back(at->path().filename().string());
  if (failed) return fail(ErrorKind::Io, "cannot list device sources in " + folder.string() + ": " + failed.message(), {{"path", folder.string()}});
  std::sort(names.begin(), names.end());
  return names;
}

Result<TensorMapBytes> encode(const MapSpec& spec, DevicePtr address, std::string_view what) {
  // cuda.h: CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion
  constexpr int kBfloat16 = 9, kSwizzle64 = 2, kSwizzle128 = 3, kFetchAsAsked = 0, kFetch128 = 2, kFetch256 = 3;
  AMK_TRY(extras, driver_extras());
  AMK_TRY(driver, cuda::driver());
  TensorMapBytes map{};
  const std::uint64_t dims[2] = {static_cast<std::uint64_t>(spec.inner), static_cast<std::uint64_t>(spec.outer)};
  const std::uint64_t strides[1] = {static_cast<std::uint64_t>(spec.stride_bytes)};
  const std::uint32_t box[2] = {static_cast<std::uint32_t>(spec.box_inner), static_cast<std::uint32_t>(spec.box_outer)};
  const std::uint32_t steps[2] = {1, 1};
  const int swizzle = spec.swizzle_bytes == 64 ? kSwizzle64 : kSwizzle128;
  const int fetch = spec.fetch_bytes == 0 ? kFetchAsAsked : spec.fetch_bytes == 128 ? kFetch128 : kFetch256;
  const std::string call = "cuTensorMapEncodeTiled of " + std::string(what);
  AMK_CHECK(driver->check(
      extras->cuTensorMapEncodeTiled(&map, kBfloat16, 2, reinterpret_cast<void*>(address), dims, strides, box, steps, 0, swizzle, fetch, 0),
      call.c_str(), std::source_location::current()));
  return map;
}

Status check_alignment(std::string_view what, DevicePtr address, std::int64_t promised) {
  if (address % static_cast<DevicePtr>(std::max<std::int64_t>(promised, 1)) == 0) return {};
  return bad_field(what, address, "an address that is a multiple of " + std::to_string(promised) + " bytes, as the plan was made for");
}

}  // namespace

Result<CompileRequest> compile_request(const Plan& plan, const std::filesystem::path& kernels_dir) {
  const std::filesystem::path folder = kernels_dir / "det_gemm" / "device";
  CompileRequest request;
  request.name = "det_gemm/" + plan.source;
  AMK_TRY(source, read_text(folder / plan.source));
  request.source = std::move(source);
  AMK_TRY(headers, headers_in(folder));
  for (const std::string& header : headers) {
    AMK_TRY(text, read_text(folder / header));
    request.headers.emplace_back(header, std::move(text));
  }
  request.options = {"-std=c++17"};
  for (const auto& [name, value] : plan.defines) request.options.push_back("-D" + name + "=" + value);
  request.architecture = plan.architecture;
  return request;
}

Result<CompiledGemm> CompiledGemm::load(const Plan& plan, std::span<const std::byte> cubin, int sm_count) {
  AMK_TRY(driver, cuda::driver());
  CompiledGemm gemm;
  gemm.plan_ = plan;
  AMK_TRY(module, cuda::Module::load(cubin));
  gemm.module_ = std::move(module);
  AMK_TRY(function, gemm.module_.function(plan.kernel));
  gemm.function_ = function;
  AMK_TRY(registers, function.attribute(cuda::abi::FunctionAttribute::Registers));
  gemm.registers_ = registers;
  if (plan.smem_bytes > 48 * 1024) AMK_CHECK(function.allow_dynamic_shared(static_cast<int>(plan.smem_bytes)));
  if (plan.cluster > 1) {
    AMK_TRY(extras, driver_extras());
    LaunchAttributes attributes{};
    const cuda::abi::LaunchConfig config = gemm.launch_config(plan.cluster, nullptr, attributes);
    int clusters = 0;
    AMK_CHECK(driver->check(extras->cuOccupancyMaxActiveClusters(&clusters, function.handle(), &config), "cuOccupancyMaxActiveClusters",
                            std::source_location::current()));
    gemm.resident_blocks_ = clusters * plan.cluster;
  } else {
    AMK_TRY(per_sm, function.blocks_per_sm(plan.block_threads, static_cast<std::size_t>(plan.smem_bytes)));
    // A wgmma launch counts on one block an SM; room for a second is the next launch's.
    gemm.resident_blocks_ = (plan.config.path == Path::Wgmma ? 1 : per_sm) * sm_count;
    if (per_sm < 1) gemm.resident_blocks_ = 0;
  }
  if (gemm.resident_blocks_ < 1) {
    return fail(ErrorKind::Rejected, "resident: the compiled kernel does not fit this device",
                {{"rule", "resident"}, {"witness", {{"registers", registers}, {"shared_bytes", plan.smem_bytes}, {"cluster", plan.cluster}}}});
  }
  return gemm;
}

cuda::abi::LaunchConfig CompiledGemm::launch_config(std::int64_t blocks, cuda::abi::Stream stream, LaunchAttributes& attributes) const {
  unsigned count = 0;
  if (plan_.cluster > 1) {
    attributes[count].id = cuda::abi::LaunchAttributeId::ClusterDimension;
    attributes[count++].value.cluster = {static_cast<unsigned>(plan_.cluster), 1, 1};
  }
  if (plan_.config.overlap) {
    attributes[count].id = cuda::abi::LaunchAttributeId::ProgrammaticStreamSerialization;
    attributes[count++].value.programmatic_stream_serialization = 1;
  }
  return {static_cast<unsigned>(blocks),
          1,
          1,
          static_cast<unsigned>(plan_.block_threads),
          1,
          1,
          static_cast<unsigned>(plan_.smem_bytes),
          stream,
          attributes.data(),
          count};
}

Status CompiledGemm::enqueue(std::int64_t blocks, void* parameters, cuda::abi::Stream stream) const {
  AMK_TRY(driver, cuda::driver());
  LaunchAttributes attributes{};
  const cuda::abi::LaunchConfig config = launch_config(blocks, stream, attributes);
  void* arguments[] = {parameters};
  return driver->check(driver->cuLaunchKernelEx(&config, function_.handle(), arguments, nullptr), "cuLaunchKernelEx",
                       std::source_location::current());
}

Status CompiledGemm::launch_wgmma(const Buffers& buffers, cuda::abi::Stream stream, int max_blocks) const {
  const Config& c = plan_.config;
  HopperParams p{};
  AMK_TRY(map_x, encode(*plan_.map_x, c.swap ? buffers.y : buffers.x, c.swap ? "y" : "x"));
  AMK_TRY(map_y, encode(*plan_.map_y, c.swap ? buffers.x : buffers.y, c.swap ? "x" : "y"));
  p.x = map_x;
  p.y = map_y;
  if (plan_.map_y_tail) {
    AMK_TRY(map_tail, encode(*plan_.map_y_tail, c.swap ? buffers.x : buffers.y, c.swap ? "x" : "y"));
    p.y_tail = map_tail;
  }
  if (plan_.map_out) {
    AMK_TRY(map_out, encode(*plan_.map_out, buffers.out, "out"));
    p.out = map_out;
  }
  p.out_pointer = buffers.out;
  p.total_in = buffers.total_in;
  p.out_stride = plan_.storage.stride_out;
  p.m = static_cast<std::uint32_t>(plan_.roles.m);
  p.n = static_cast<std::uint32_t>(plan_.roles.n);
  p.k_blocks = static_cast<std::uint32_t>(plan_.k_blocks);
  p.tiles_m = static_cast<std::uint32_t>(plan_.tiles_m);
  p.tiles_n = static_cast<std::uint32_t>(plan_.tiles_n);
  p.group = static_cast<std::uint32_t>(c.group);
  p.bands_along_n = c.raster == RasterAlong::N;
  p.wide_stores = plan_.wide_stores;
  std::int64_t blocks = std::min<std::int64_t>(plan_.grid_limit, resident_blocks_);
  if (max_blocks > 0) blocks = std::min<std::int64_t>(blocks, std::max(max_blocks, plan_.cluster));
  return enqueue(blocks / plan_.cluster * plan_.cluster, &p, stream);
}

Status CompiledGemm::launch_simple(const Buffers& buffers, cuda::abi::Stream stream) const {
  const Storage& s = plan_.storage;
  if (plan_.config.path == Path::Plain) {
    PlainParams p{buffers.x,     buffers.y,     buffers.out, buffers.total_in, plan_.shape.m,
                  plan_.shape.n, plan_.shape.k, s.stride_x,  s.stride_y,       s.stride_out};
    return enqueue(std::min<std::int64_t>(plan_.grid_limit, 0x7FFFFFFF), &p, stream);
  }
  TiledParams p{.x = buffers.x,
                .y = buffers.y,
                .out = buffers.out,
                .total_in = buffers.total_in,
                .m = plan_.shape.m,
                .n = plan_.shape.n,
                .k = plan_.shape.k,
                .stride_x = s.stride_x,
                .stride_y = s.stride_y,
                .stride_out = s.stride_out,
                .tiles_m = static_cast<std::uint32_t>(plan_.tiles_m),
                .tiles_n = static_cast<std::uint32_t>(plan_.tiles_n),
                .group = static_cast<std::uint32_t>(plan_.config.group),
                .bands_along_n = plan_.config.raster == RasterAlong::N,
                .wide_stores = plan_.wide_stores};
  return enqueue(plan_.grid_limit, &p, stream);
}

Status CompiledGemm::launch(const Buffers& buffers, cuda::abi::Stream stream, int max_blocks) const {
  if (plan_.shape.m == 0 || plan_.shape.n == 0) return {};
  AMK_CHECK(check_alignment("x", buffers.x, plan_.storage.align_x));
  AMK_CHECK(check_alignment("y", buffers.y, plan_.storage.align_y));
  AMK_CHECK(check_alignment("out", buffers.out, plan_.storage.align_out));
  AMK_CHECK(check_alignment("total_in", buffers.total_in, plan_.shape.resumed ? std::clamp<std::int64_t>(plan_.storage.align_total, 4, 8) : 4));
  if (plan_.shape.resumed && buffers.total_in == 0) return bad_field("total_in", nullptr, "the sums that a resumed chain starts from");
  if (!plan_.shape.resumed && plan_.shape.chunk == 0 && buffers.total_in != 0)
    return bad_field("total_in", buffers.total_in, "null: this plan's chain starts at zero");
  return plan_.config.path == Path::Wgmma ? launch_wgmma(buffers, stream, max_blocks) : launch_simple(buffers, stream);
}

}  // namespace amk::det_gemm
