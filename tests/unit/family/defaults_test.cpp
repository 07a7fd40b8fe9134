// The default config must run: for every model of the catalogue on every GPU of config/gpus it is lowered, proved and fits the device.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "core/base/json.h"
#include "core/model/load.h"
#include "kernels/megakernel/workload.h"

using namespace amk;

TEST_CASE("the default config of every model runs on every GPU") {
  const std::filesystem::path config = std::filesystem::path(AMK_SOURCE_DIR) / "config";
  const ModelSources sources = ModelSources::from_environment(config);
  struct Pair {
    std::string model, gpu, failure;
  };
  std::vector<Pair> pairs;
  for (const std::string& model : catalogue_names(sources))
    for (const std::string& gpu : gpu_target_names(config / "gpus")) pairs.push_back({model, gpu, ""});
  REQUIRE(pairs.size() > 100);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < pairs.size(); i = next++) {
      Pair& p = pairs[i];
      const auto ref = resolve_model(p.model, sources);
      const auto target = load_gpu_target(p.gpu, config / "gpus");
      if (!ref || !target) {
        p.failure = "not found";
        continue;
      }
      const auto workload = MegakernelWorkload::create(*ref, *target);
      if (!workload) {
        p.failure = workload.error().message;
        continue;
      }
      const auto us = (*workload)->predict_us((*workload)->default_config());
      if (!us) p.failure = us.error().message;
    }
  };
  std::thread other(work);
  work();
  other.join();
  for (const Pair& p : pairs) CHECK_MESSAGE(p.failure.empty(), p.model << " on " << p.gpu << ": " << p.failure);
}

// fp16 overflows where real models multiply gates, so that fp16 and fp32 models have fp32 activations on a GPU, and caches of the weights' type:
// with bf16 a program would be proved, and ranked, that no GPU runs.
TEST_CASE("what is proved and ranked is the program that a GPU runs, whatever the weights' type") {
  const std::filesystem::path config = std::filesystem::path(AMK_SOURCE_DIR) / "config";
  const auto target = load_gpu_target("h200", config / "gpus");
  REQUIRE(target.has_value());
  const struct {
    DType weights, activations, kv;
  } formats[] = {{DType::BF16, DType::BF16, DType::BF16}, {DType::F16, DType::F32, DType::F16}, {DType::F32, DType::F32, DType::F32}};
  for (const auto& format : formats) {
    auto ref = resolve_model("smollm2-135m", ModelSources::from_environment(config));
    REQUIRE(ref.has_value());
    ref->spec.dtype = format.weights;
    const auto workload = MegakernelWorkload::create(*ref, *target);
    REQUIRE(workload.has_value());
    const auto parsed = (*workload)->parse((*workload)->default_config());
    REQUIRE(parsed.has_value());
    const auto program = (*workload)->proved_program(*parsed);
    REQUIRE(program.has_value());
    CAPTURE(static_cast<int>(format.weights));
    int vectors = 0, caches = 0;
    for (const Buffer& buffer : (*program)->buffers) {
      if (buffer.space == Space::Kv) {
        ++caches;
        CHECK(buffer.dtype == format.kv);
      } else if (buffer.binding.rows_of_matrix()) {
        CHECK(buffer.dtype == format.weights);
      } else if (buffer.space == Space::Activation && buffer.name.ends_with(".act")) {
        ++vectors;
        CHECK(buffer.dtype == format.activations);
      }
    }
    CHECK(vectors >= ref->spec.layers);
    CHECK(caches >= ref->spec.layers);
    const auto us = (*workload)->predict_us((*workload)->default_config());
    CHECK(us.has_value());
  }
}
