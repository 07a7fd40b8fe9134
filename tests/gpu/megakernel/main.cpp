// GPU tests of the megakernel. Usage: gpu_megakernel [--only NAME] [--quick]; names: main(). Exit 0 when all passed, 1 otherwise, 77 without a GPU.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/base/json.h"
#include "core/base/parse_json.h"
#include "core/model/load.h"
#include "tests/gpu/megakernel/checks.h"
#include "tests/gpu/megakernel/crowd.h"

namespace amk::gpu_test {

Result<std::shared_ptr<const MegakernelWorkload>> Bench::workload(const std::string& name) const {
  AMK_TRY(ref, resolve_model(name, ModelSources::from_environment(resources.config())));
  return MegakernelWorkload::create(ref, target);
}

Result<std::unique_ptr<GpuModel>> Bench::model(const std::string& name, int max_seq, int batch) const {
  AMK_TRY(ref, resolve_model(name, ModelSources::from_environment(resources.config())));
  AMK_TRY(weights, load_weights(ref));
  return GpuModel::open(device, weights, std::min(max_seq, ref.spec.max_position), cache, batch);
}

std::unique_ptr<GpuJudge> Bench::judge(WorkerLink& link, const std::string* fault) const {
  DeviceJudgeOptions options;
  options.config_dir = resources.config();
  options.cache_folder = cache;
  options.timing_ms = 400;
  if (fault != nullptr) options.next_fault = [fault] { return *fault; };
  return std::make_unique<GpuJudge>(device, options, link);
}

std::vector<std::string> Bench::fixture_models() const {
  std::vector<std::string> out;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(fixtures, none)) {
    if (entry.path().filename().string().rfind("reject-", 0) != 0 && std::filesystem::exists(entry.path() / "config.json"))
      out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

Json json_of(const std::string& text) {
  auto json = parse_json(text, "test config");
  return json ? *json : Json(nullptr);
}

Result<ScheduleConfig> config_of(const std::string& text) { return parse_schedule_config(json_of(text)); }

}  // namespace amk::gpu_test

int main(int argc, char** argv) {
  using namespace amk;
  using namespace amk::gpu_test;
  std::string only;
  bool crowd = false;
  Bench bench;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--worker" && i + 1 < argc) return run_gpu_worker(0, 1, argv[i + 1], true);
    if (argument == "--quick") {
      bench.quick = true;
    } else if (argument == "--crowd") {
      crowd = true;  // one process of Crowd
    } else if (argument == "--only" && i + 1 < argc) {
      only = argv[++i];
    } else {
      return std::fprintf(stderr, "unknown argument %s; accepted: --only NAME, --quick\n", argument.c_str()), 2;
    }
  }
  const auto resources = find_resources();
  if (!resources) return std::fprintf(stderr, "%s\n", resources.error().message.c_str()), 3;
  const auto gpus = gpu_devices();
  if (!gpus) return std::fprintf(stderr, "skipped: %s\n", gpus.error().message.c_str()), 77;
  if (const auto nvrtc = Nvrtc::open(); !nvrtc) return std::fprintf(stderr, "skipped: %s\n", nvrtc.error().message.c_str()), 77;
  bench.device = gpus->front();
  bench.resources = *resources;
  bench.target = local_target(bench.device, resources->config() / "gpus");
  const char* cache = std::getenv("AMK_TEST_CACHE");
  bench.cache = cache != nullptr ? cache : (std::filesystem::temp_directory_path() / ("amk-gpu-test-" + std::to_string(getuid()))).string();
  const char* fixtures = std::getenv("AMK_FIXTURES");
  bench.fixtures = fixtures != nullptr ? std::filesystem::path(fixtures) : std::filesystem::path(AMK_SOURCE_DIR) / "tests/fixtures/hf";
  bench.self = std::filesystem::read_symlink("/proc/self/exe").string();
  if (crowd) return run_in_crowd(bench);
  Checks checks;
  struct Test {
    const char* name;
    void (*run)(const Bench&, Checks&);
    bool when_asked = false;  // only by --only
  };
  const Test tests[] = {{"fixtures", test_fixtures},
                        {"knobs", test_knobs},
                        {"slices", test_slices},
                        {"attention_o", test_attention_o},
                        {"contexts", test_contexts},
                        {"kv_ring", test_kv_ring},
                        {"batch", test_batch},
                        {"steps", test_steps},
                        {"wrong", test_wrong},
                        {"wrong_ring", test_wrong_ring},
                        {"wrong_int8", test_wrong_int8},
                        {"wrong_slices", test_wrong_slices},
                        {"wrong_attention_o", test_wrong_attention_o},
                        {"judge", test_judge},
                        {"judge_crowded", test_judge_crowded},
                        {"instruction", test_instruction},
                        {"long", test_long},
                        {"longest", test_longest, true},
                        {"sanitize", test_sanitize, true},
                        {"sanitize-batch", test_sanitize_batch, true},
                        {"sanitize-attention-o", test_sanitize_attention_o, true},
                        {"racecheck-attention-o", test_racecheck_attention_o, true},
                        {"sanitize-kv-ring", test_sanitize_kv_ring, true},
                        {"racecheck-kv-ring", test_racecheck_kv_ring, true},
                        {"racecheck-kv-direct", test_racecheck_kv_direct, true},
                        {"sanitize-steps", test_sanitize_steps, true},
                        {"racecheck-steps", test_racecheck_steps, true},
                        {"racecheck-steps-batch", test_racecheck_steps_batch, true},
                        {"racecheck", test_racecheck, true},
                        {"racecheck-batch", test_racecheck_batch, true},
                        {"barriers-arrive", test_barriers_arrive, true},
                        {"barriers-full", test_barriers_full, true},
                        {"barriers-some", test_barriers_some, true}};
  for (const auto& [name, test, when_asked] : tests) {
    if (only.empty() ? when_asked : only != name) continue;
    const int passed = checks.passed, failed = checks.failed;
    test(bench, checks);
    std::printf("%s: %d passed, %d failed\n", name, checks.passed - passed, checks.failed - failed);
    std::fflush(stdout);
  }
  std::printf("%d passed, %d failed\n", checks.passed, checks.failed);
  return checks.failed == 0 && checks.passed > 0 ? 0 : 1;
}
