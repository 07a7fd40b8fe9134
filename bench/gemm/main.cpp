// bench/run gemm [--prebuild] [--search] [--experiments FILE]: for each experiment, checks bits against the plain kernel and the CPU oracle, then
// races the configs against cuBLAS. FILE: {"rounds": n, "sample_us": x, "experiments": [{"model": "det_gemm:…", "configs": ["tuned", {…}, …]}, …]};
// "resumed": true: a db in one chain that goes on from fp32 sums, against cuBLAS with beta = 1. "tuned" is what a call of that problem gets from the
// tuned table and the defaults, and the whole list where "configs" is missing.
// --prebuild only fills the build cache (no GPU). --search also runs the file's "searches": [{"model", "strategy", "evaluations", "seed"}],
// each against the configs of the experiment of the same model. Exit 77 without a GPU, 1 on any mismatch.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "bench/gemm/cublas.h"
#include "bench/gemm/search.h"
#include "core/base/json.h"
#include "core/base/parse_json.h"
#include "core/base/resources.h"
#include "kernels/det_gemm/bed.h"
#include "kernels/det_gemm/dispatch.h"
#include "kernels/det_gemm/workload_id.h"

using namespace amk;
using namespace amk::det_gemm;

namespace {

struct Experiment {
  Problem problem;
  std::string id;
  std::vector<Config> configs;
  bool resumed = false;  // out += product: a chain resumed from sums, cuBLAS with beta = 1
};
struct Search {
  std::string model, strategy;
  int evaluations = 60;
  std::uint64_t seed = 1;
};
struct Suite {
  std::vector<Search> searches;
  int rounds = 9;
  double sample_us = 3000;
  double rotate_mb = 256;
  bool oracle = true;
  std::vector<Experiment> experiments;
};

// What a call would get: the config, said on standard error with where it comes from.
Result<Config> tuned_config(const Experiment& experiment, const TunedTable& table, const GpuTarget& target) {
  AMK_TRY(choice, choose(experiment.problem, dense_storage(canonical(experiment.problem)), target, table, {}));
  std::fprintf(stderr, "%s: %s, %s\n", experiment.id.c_str(), choice.implementation.c_str(), choice.origin.c_str());
  return choice.plan.config;
}

Result<Suite> read_suite(const std::string& path, const TunedTable& table, const GpuTarget& target) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return fail(ErrorKind::Io, "cannot read " + path);
  AMK_TRY(json, parse_json(text, path));
  Suite suite;
  suite.rounds = json.value("rounds", suite.rounds);
  suite.sample_us = json.value("sample_us", suite.sample_us);
  suite.rotate_mb = json.value("rotate_mb", suite.rotate_mb);
  suite.oracle = json.value("oracle", suite.oracle);
  for (const Json& entry : json.at("experiments")) {
    Experiment experiment;
    AMK_TRY(problem, parse_workload(entry.at("model").get<std::string>(), {}));
    experiment.problem = problem;
    experiment.id = workload_id(problem);
    experiment.resumed = entry.value("resumed", false);
    if (experiment.resumed) experiment.id += " resumed";
    for (const Json& config : entry.value("configs", Json::array({"tuned"}))) {
      AMK_TRY(parsed, config == "tuned" ? tuned_config(experiment, table, target) : parse_config(config));
      experiment.configs.push_back(parsed);
    }
    suite.experiments.push_back(std::move(experiment));
  }
  for (const Json& entry : json.value("searches", Json::array())) {
    suite.searches.push_back({entry.at("model").get<std::string>(), entry.value("strategy", std::string("portfolio")), entry.value("evaluations", 60),
                              entry.value("seed", std::uint64_t{1})});
  }
  return suite;
}

std::string label(const Config& c) {
  if (c.path == Path::Plain) return "plain";
  std::string text = (c.path == Path::Mma ? "mma "
                      : c.swap            ? "swap "
                                          : "") +
                     std::to_string(c.tile_m) + "x" + std::to_string(c.tile_n) + "x" + std::to_string(c.tile_k) + " s" + std::to_string(c.stages);
  if (c.path == Path::Wgmma) text += " w" + std::to_string(c.consumers) + " c" + std::to_string(c.cluster_m) + "x" + std::to_string(c.cluster_n);
  text += std::string(" ") + (c.raster == RasterAlong::M ? "m" : "n") + std::to_string(c.group);
  if (c.path == Path::Wgmma)
    text += c.epilogue == Epilogue::Tma ? " tma" + std::to_string(c.store_buffers) : c.epilogue == Epilogue::Staged ? " stg" : " dir";
  if (c.l2_x != L2Hint::Normal || c.l2_y != L2Hint::Normal)
    text += " l2" + std::to_string(static_cast<int>(c.l2_x)) + std::to_string(static_cast<int>(c.l2_y));
  if (c.producer == Producer::Warp) text += " pw";
  if (c.overlap) text += " ov";
  if (c.defer) text += " df";
  if (c.l2_fetch != 256) text += " f" + std::to_string(c.l2_fetch);
  return text;
}

void emit(const std::string& metric, double value, const std::string& unit, const std::string& versus) {
  Json line = {{"bench", "gemm"}, {"metric", metric}, {"value", value}, {"unit", unit}};
  if (!versus.empty()) line["versus"] = versus;
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

// Launches that overlap their neighbours must leave the same bits: three rounds over all sets without a pause, then the outputs are compared.
Result<bool> chains_are_right(Bed& bed, const std::vector<Contender>& contenders) {
  bool good = true;
  for (const Contender& contender : contenders) {
    if (contender.name == "cuBLAS") continue;
    for (int round = 0; round < 3; ++round) AMK_CHECK(bed.launch_all(contender));
    AMK_TRY(compared, bed.check_outputs(2));
    if (compared.clean()) continue;
    std::fprintf(stderr, "  %-44s WRONG in a chain of launches: %llu words differ\n", contender.name.c_str(),
                 static_cast<unsigned long long>(compared.different));
    good = false;
  }
  return good;
}

Result<bool> run(const Experiment& experiment, const Suite& suite, Runner& runner, const Cublas* blas) {
  AMK_TRY(bed, Bed::make(runner, experiment.problem, 12345, static_cast<std::int64_t>(suite.rotate_mb * 1e6)));
  bool good = true;
  if (suite.oracle) {
    std::int64_t checked = 0;
    AMK_TRY(wrong, bed.oracle_mismatches(2, 99, checked));
    std::fprintf(stderr, "%s: plain kernel against CPU oracle: %lld of %lld differ\n", experiment.id.c_str(), static_cast<long long>(wrong),
                 static_cast<long long>(checked));
    good = good && wrong == 0;
  }
  std::vector<Contender> contenders;
  const float beta = experiment.resumed ? 1 : 0;
  if (blas != nullptr) contenders.push_back({"cuBLAS", [&](const Buffers& b) { return blas->gemm(bed.shape(), b.x, b.y, b.out, beta); }});
  // Sums of +0, read as any others, leave the bits that the plain kernel has for the product alone.
  Canonical shape = bed.shape();
  shape.resumed = experiment.resumed;
  AMK_TRY(sums, cuda::Memory::allocate(experiment.resumed ? static_cast<std::size_t>(shape.m * shape.n) * 4 : 0));
  if (experiment.resumed) AMK_CHECK(cuda::fill_u8(sums.pointer(), 0, sums.bytes(), runner.stream()));
  for (const Config& config : experiment.configs) {
    const std::string name = label(config);
    auto plan = make_plan(shape, dense_storage(shape), config, runner.target());
    if (!plan) {
      std::fprintf(stderr, "  %-44s rejected: %s\n", name.c_str(), plan.error().message.c_str());
      continue;
    }
    AMK_TRY(gemm, runner.compile(*plan));
    const cuda::DevicePtr total_in = experiment.resumed ? sums.pointer() : 0;
    const auto launch = [gemm, total_in, &runner](const Buffers& b) { return gemm->launch({b.x, b.y, b.out, total_in}, runner.stream().handle()); };
    AMK_TRY(compared, bed.check(launch));
    if (!compared.clean()) {
      std::fprintf(stderr, "  %-44s WRONG: %llu words differ, %llu guard bytes, %llu input words (registers %d)\n", name.c_str(),
                   static_cast<unsigned long long>(compared.different), static_cast<unsigned long long>(compared.guard_bytes),
                   static_cast<unsigned long long>(compared.inputs_changed), gemm->registers());
      good = false;
      continue;
    }
    contenders.push_back({name, launch});
  }
  AMK_TRY(chains, chains_are_right(bed, contenders));
  good = good && chains;
  AMK_TRY(timings, bed.race(contenders, suite.rounds, suite.sample_us));
  const double tflop = flops(bed.shape()) * 1e-12, gigabytes = static_cast<double>(compulsory_bytes(bed.shape())) * 1e-9;
  for (const Raced& t : timings) {
    std::fprintf(stderr, "  %-44s %9.2f us %7.1f TFLOP/s %7.0f GB/s  %.3f [%.3f, %.3f]\n", t.name.c_str(), t.median_us, tflop / t.median_us * 1e6,
                 gigabytes / t.median_us * 1e6, t.ratio, t.ci_low, t.ci_high);
    emit(experiment.id + " " + t.name, t.median_us, "us", "");
    if (&t != &timings.front()) emit(experiment.id + " " + t.name + " ratio", t.ratio, "ratio", timings.front().name);
  }
  return good;
}

Status search(const Search& wanted, const Suite& suite, Runner& runner, const Resources& resources, const std::filesystem::path& cache) {
  SearchRun run{wanted.model, wanted.strategy, wanted.evaluations, wanted.seed, {}};
  for (const Experiment& e : suite.experiments)
    if (e.id == wanted.model) run.known = e.configs;
  AMK_TRY(result, run_search(runner, run, resources, cache));
  std::fprintf(stderr,
               "search %s %s seed %llu: 97%% of best known after %d evaluations; found %.2f us, best known %.2f us; %d rejected, %d incorrect\n",
               run.workload.c_str(), run.strategy.c_str(), static_cast<unsigned long long>(run.seed), result.to_97_percent, result.found_us,
               result.best_known_us, result.rejected, result.incorrect);
  std::fprintf(stderr, "  best after 1, 5, 10, 20, 40, last:");
  for (const std::size_t i : {std::size_t{1}, std::size_t{5}, std::size_t{10}, std::size_t{20}, std::size_t{40}, result.best_us.size()})
    if (i <= result.best_us.size() && i > 0) std::fprintf(stderr, " %.2f", result.best_us[i - 1]);
  std::fprintf(stderr, "\n  %s\n", result.best_config.dump().c_str());
  emit("search " + run.workload + " " + run.strategy + " evaluations to 97%", result.to_97_percent, "evaluations", "best known config");
  emit("search " + run.workload + " " + run.strategy + " found / best known", result.best_known_us / result.found_us, "ratio", "best known config");
  return {};
}

Result<int> main_result(int argc, char** argv) {
  std::string file;
  bool prebuild = false, searches = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--prebuild")
      prebuild = true;
    else if (argument == "--search")
      searches = true;
    else if (argument == "--experiments" && i + 1 < argc)
      file = argv[++i];
    else
      return fail(ErrorKind::InvalidArgument, "unknown argument " + argument + "; accepted: --prebuild, --search, --experiments FILE");
  }
  AMK_TRY(resources, find_resources());
  if (file.empty()) file = (resources.config() / "tuned" / "det_gemm_bench.json").string();
  AMK_TRY(table, TunedTable::load(resources.config() / "tuned" / "det_gemm.json"));
  const char* cache_dir = std::getenv("AMK_BUILD_CACHE");
  const std::filesystem::path cache =
      cache_dir != nullptr ? std::filesystem::path(cache_dir) : std::filesystem::temp_directory_path() / "amk-gemm-cache";
  if (prebuild) {
    AMK_TRY(target, load_gpu_target("h200", resources.config() / "gpus"));
    AMK_TRY(suite, read_suite(file, table, target));
    std::vector<Plan> plans;
    for (const Experiment& e : suite.experiments) {
      for (const Config& config : e.configs) {
        Canonical shape = canonical(e.problem);
        shape.resumed = e.resumed;
        auto plan = make_plan(shape, dense_storage(shape), config, target);
        if (plan)
          plans.push_back(std::move(*plan));
        else
          std::fprintf(stderr, "%s %s: %s\n", e.id.c_str(), label(config).c_str(), plan.error().message.c_str());
      }
    }
    AMK_CHECK(Runner::prebuild(plans, resources, cache, 0));
    std::fprintf(stderr, "%zu plans built\n", plans.size());
    return 0;
  }
  AMK_TRY(runner, Runner::open(0, resources, cache));
  AMK_TRY(suite, read_suite(file, table, runner->target()));
  auto blas = Cublas::open(runner->stream());
  if (!blas)
    std::fprintf(stderr, "no cuBLAS: %s\n", blas.error().message.c_str());
  else
    std::fprintf(stderr, "%s, cuBLAS %d\n", runner->target().product.c_str(), blas->version());
  bool good = true;
  for (const Experiment& experiment : suite.experiments) {
    AMK_TRY(ok, run(experiment, suite, *runner, blas ? &*blas : nullptr));
    good = good && ok;
  }
  if (searches) {
    for (const Search& wanted : suite.searches) AMK_CHECK(search(wanted, suite, *runner, resources, cache));
  }
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Result<int> result = main_result(argc, argv);
  if (result) return *result;
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  return result.error().kind == ErrorKind::Unavailable ? 77 : 3;
}
