#include "core/target/gpu_target.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/base/resources.h"

using namespace amk;
namespace fs = std::filesystem;

namespace {
const fs::path kGpus = fs::path(AMK_SOURCE_DIR) / "config" / "gpus";
}

TEST_CASE("every shipped record loads, names its source and survives a round trip") {
  const auto names = gpu_target_names(kGpus);
  for (const char* required : {"rtx5090", "b200", "h200", "h100", "h100-pcie", "a100", "l40s", "l4", "rtx4090", "h20"})
    CHECK_MESSAGE(std::find(names.begin(), names.end(), required) != names.end(), required);
  for (const std::string& name : names) {
    CAPTURE(name);
    const auto target = load_gpu_target(name, kGpus);
    REQUIRE(target);
    CHECK(target->source.size() > 40);
    CHECK(target->smem_optin_bytes == target->smem_per_sm_bytes - 1024);  // CUDA reserves 1 KiB a block on sm_80 and later
    const auto again = gpu_target_from_json(to_json(*target));
    REQUIRE(again);
    CHECK(to_json(*again) == to_json(*target));
  }
}

TEST_CASE("figures that the published tables fix") {
  const auto h100 = load_gpu_target("h100", kGpus).value();
  CHECK(h100.sm_count == 132);
  CHECK(h100.smem_optin_bytes == 227 * 1024);
  CHECK(h100.peak_bandwidth_gbs == 3350);
  const auto pcie = load_gpu_target("h100-pcie", kGpus).value();
  CHECK(pcie.sm_count == 114);
  CHECK(load_gpu_target("h20", kGpus)->sm_count == 78);
  // Dense tensor throughput = SMs × FLOPs per clock × clock: sm_90 does 4096 bf16 FLOPs a clock and SM, sm_80 2048.
  CHECK(pcie.peak_bf16_tflops == doctest::Approx(114 * 4096 * 1.62e9 / 1e12).epsilon(0.01));
  const auto a100 = load_gpu_target("a100", kGpus).value();
  CHECK(a100.peak_bf16_tflops == doctest::Approx(108 * 2048 * a100.boost_clock_mhz * 1e6 / 1e12).epsilon(0.01));
  const auto b4090 = load_gpu_target("rtx4090", kGpus).value();
  CHECK(b4090.peak_bf16_tflops == doctest::Approx(128 * 512 * b4090.boost_clock_mhz * 1e6 / 1e12).epsilon(0.01));
}

TEST_CASE("an unknown or malicious name is refused with the choices") {
  for (const char* name : {"h300", "", "../gpus/h100", "H100", "h100.json"}) {
    const auto target = load_gpu_target(name, kGpus);
    REQUIRE_FALSE(target);
    CHECK(target.error().kind == ErrorKind::NotFound);
    CHECK(target.error().data["field"] == "gpu");
    CHECK(target.error().message.find("rtx5090") != std::string::npos);
  }
  CHECK_FALSE(load_gpu_target("h100", "/nonexistent"));
}

TEST_CASE("a record with a wrong field names it") {
  const Json good = to_json(load_gpu_target("h100", kGpus).value());
  const auto field_of = [&](const char* key, Json value) {
    Json bad = good;
    if (value.is_discarded())
      bad.erase(key);
    else
      bad[key] = std::move(value);
    const auto target = gpu_target_from_json(bad);
    REQUIRE_FALSE(target);
    CHECK(target.error().kind == ErrorKind::InvalidArgument);
    return target.error().data["field"].get<std::string>();
  };
  const Json missing = Json(Json::value_t::discarded);
  CHECK(field_of("sm_count", 0) == "sm_count");
  CHECK(field_of("sm_count", 132.5) == "sm_count");
  CHECK(field_of("sm_count", "132") == "sm_count");
  CHECK(field_of("sm_count", 1e300) == "sm_count");
  CHECK(field_of("l2_bytes", -1) == "l2_bytes");
  CHECK(field_of("peak_bandwidth_gbs", missing) == "peak_bandwidth_gbs");
  CHECK(field_of("source", "") == "source");
  CHECK(field_of("name", "a/b") == "name");
  CHECK(field_of("colour", "red") == "colour");
  CHECK(field_of("read_bandwidth_gbs", 4000) == "read_bandwidth_gbs");
  CHECK(field_of("smem_optin_bytes", 300000) == "smem_optin_bytes");
  CHECK_FALSE(gpu_target_from_json(Json::array()));
}

TEST_CASE("a damaged file is Corrupt and names the file") {
  const fs::path dir = fs::temp_directory_path() / ("amk-gpus-" + std::to_string(reinterpret_cast<std::uintptr_t>(&kGpus)));
  fs::create_directories(dir);
  std::ofstream(dir / "torn.json") << "{\"name\": \"to";
  Json renamed = to_json(load_gpu_target("h100", kGpus).value());
  std::ofstream(dir / "other.json") << renamed.dump();
  for (const char* name : {"torn", "other"}) {
    const auto target = load_gpu_target(name, dir);
    REQUIRE_FALSE(target);
    CHECK(target.error().kind == ErrorKind::Corrupt);
    CHECK(target.error().message.find(dir.string()) != std::string::npos);
  }
  fs::remove_all(dir);
}

TEST_CASE("resources: an explicit folder is never silently replaced") {
  const fs::path source = AMK_SOURCE_DIR;
  REQUIRE(find_resources("", "", source));
  CHECK(find_resources("", "/nonexistent/bin", source)->root == source);
  CHECK_FALSE(find_resources("/nonexistent", source, source));
  const auto none = find_resources("", "/nonexistent/bin", "");
  REQUIRE_FALSE(none);
  CHECK(none.error().kind == ErrorKind::NotFound);

  const fs::path bundle = fs::temp_directory_path() / ("amk-bundle-" + std::to_string(reinterpret_cast<std::uintptr_t>(&kGpus)));
  fs::create_directories(bundle / "bin");
  fs::create_directories(bundle / "share" / "amk" / "config");
  fs::create_directories(bundle / "share" / "amk" / "schemas");
  CHECK(find_resources("", bundle / "bin", source)->root == bundle / "share" / "amk");
  fs::remove_all(bundle);
}
