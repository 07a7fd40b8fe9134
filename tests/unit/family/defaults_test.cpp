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
