#include "kernels/evaluator/gpu_report.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/parse_json.h"
#include "core/base/stats.h"
#include "embedded/evaluator_sources.h"
#include "kernels/evaluator/cuda_runtime.h"
#include "kernels/evaluator/nvml.h"

namespace amk {
namespace {

Json read_facts(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) return Json::object();
  std::ostringstream text;
  text << in.rdbuf();
  auto json = parse_json(text.str(), path.string());
  return json && json->is_object() ? *json : Json::object();
}

std::optional<double> known_bandwidth(const Json& facts, const std::string& uuid) {
  const auto gpu = facts.find(uuid);
  if (gpu == facts.end() || !gpu->is_object()) return std::nullopt;
  const auto value = gpu->find("read_bandwidth_gbs");
  if (value == gpu->end() || !value->is_number() || value->get<double>() <= 0) return std::nullopt;
  return value->get<double>();
}

Json report_of(const GpuDevice& gpu, const Json& facts) {
  Json json = {{"ordinal", gpu.ordinal},
               {"uuid", gpu.uuid},
               {"product", gpu.product},
               {"architecture", gpu.architecture()},
               {"sm_count", gpu.sm_count},
               {"smem_optin_bytes", gpu.smem_optin_bytes},
               {"l2_bytes", gpu.l2_bytes},
               {"memory_bytes", gpu.memory_bytes},
               {"bus_bandwidth_gbs", gpu.bus_bandwidth_gbs()},
               {"cooperative_launch", gpu.cooperative_launch}};
  if (const auto measured = known_bandwidth(facts, gpu.uuid)) json["read_bandwidth_gbs"] = *measured;
  return json;
}

}  // namespace

Json gpu_report(const std::filesystem::path& facts_path) {
  Json report = {{"gpus", Json::array()}, {"missing", Json::array()}};
  const auto missing = [&](const Error& error) { report["missing"].push_back(error.message); };
  const Json facts = read_facts(facts_path);
  const auto gpus = gpu_devices();
  if (gpus) {
    for (const GpuDevice& gpu : *gpus) {
      report["gpus"].push_back(report_of(gpu, facts));
      if (gpu.sm_major < 8 || !gpu.cooperative_launch) report["missing"].push_back(gpu.product + " is older than compute capability 8.0: not usable");
    }
    report["cuda"] = std::to_string((*cuda::driver())->version / 1000) + "." + std::to_string((*cuda::driver())->version % 1000 / 10);
  } else {
    missing(gpus.error());
  }
  if (const auto nvrtc = Nvrtc::open()) {
    report["nvrtc"] = {{"version", (*nvrtc)->version()}, {"library", (*nvrtc)->library()}};
  } else {
    missing(nvrtc.error());
  }
  if (const auto nvml = Nvml::open()) {
    report["nvml"] = true;
    if (const auto version = (*nvml)->driver_version()) report["driver"] = *version;
  } else {
    missing(nvml.error());
  }
  return report;
}

Result<ReadBandwidth> read_bandwidth_of(std::span<const double> samples_us, std::size_t bytes) {
  std::vector<double> us;
  for (const double sample : samples_us)
    if (sample > 0) us.push_back(sample);
  if (us.empty()) return fail(ErrorKind::Unavailable, "the read bandwidth could not be measured: events report no time");
  constexpr double kAlike = 1.05;
  const double shortest_us = *std::min_element(us.begin(), us.end());
  return ReadBandwidth{static_cast<double>(bytes) / shortest_us * 1e-3, median(us) <= kAlike * shortest_us};
}

Result<ReadBandwidth> measure_read_bandwidth(const GpuDevice& device, const Compiler& compiler, const BuildCache& cache) {
  CompileRequest request;
  request.name = "read_bandwidth.cu";
  request.architecture = device.architecture();
  request.options = {"-std=c++17"};
  request.source = evaluator_sources().front().second;
  AMK_TRY(built, cache.build(compiler, request));
  AMK_TRY(context, cuda::Context::open(device.ordinal));
  AMK_TRY(stream, cuda::Stream::create());
  AMK_TRY(module, cuda::Module::load(built.kernel.cubin));
  AMK_TRY(kernel, module.function("amk_read"));
  const std::size_t bytes = static_cast<std::size_t>(std::max<std::int64_t>(32 * device.l2_bytes, std::int64_t{1} << 30));
  AMK_TRY(data, cuda::Memory::allocate(bytes));
  AMK_TRY(sink, cuda::Memory::allocate(4));
  AMK_CHECK(cuda::fill_u32(data.pointer(), 0x3f9d70a4u, bytes / 4, stream));
  AMK_TRY(start, cuda::Event::create());
  AMK_TRY(end, cuda::Event::create());
  cuda::Launch launch;
  launch.grid.x = static_cast<unsigned>(device.sm_count * 4);
  launch.block.x = 512;
  std::vector<double> samples_us;
  for (int i = 0; i < 7; ++i) {
    AMK_CHECK(start.record(stream));
    AMK_CHECK(kernel(launch, stream, data.pointer(), static_cast<std::uint64_t>(bytes / 16), sink.pointer()));
    AMK_CHECK(end.record(stream));
    AMK_CHECK(stream.synchronize());
    AMK_TRY(us, cuda::Event::elapsed_us(start, end));
    if (i >= 2) samples_us.push_back(us);
  }
  return read_bandwidth_of(samples_us, bytes);
}

Result<ReadBandwidth> read_bandwidth(const GpuDevice& device, const std::filesystem::path& facts_path, const Compiler& compiler,
                                     const BuildCache& cache) {
  Json facts = read_facts(facts_path);
  if (const auto known = known_bandwidth(facts, device.uuid)) return ReadBandwidth{*known, true};
  AMK_TRY(measured, measure_read_bandwidth(device, compiler, cache));
  if (!measured.lasting) return measured;
  facts[device.uuid] = {{"product", device.product}, {"read_bandwidth_gbs", measured.gbs}};
  (void)replace_file(facts_path, facts.dump(2) + "\n");  // of two writers the later wins; one that cannot write measures again next time
  return measured;
}

}  // namespace amk
