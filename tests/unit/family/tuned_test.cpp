// The tuned configs that amk ships: each is one that its GPU would be given, and `tuned` finds the fastest.
#include "core/base/resources.h"
#include "kernels/megakernel/tuned_configs.h"
#include "tests/unit/family/opened.h"

#include <unistd.h>

#include <fstream>
#include <map>

using namespace amk;

namespace {

std::vector<TunedConfig> shipped() {
  const auto entries = load_tuned_configs(std::filesystem::path(AMK_SOURCE_DIR) / "config/tuned/megakernel.json");
  REQUIRE_MESSAGE(entries, (entries ? "" : entries.error().message));
  return *entries;
}

// What the loader says of a file of these bytes.
Error refusal(const std::string& bytes) {
  const auto path = std::filesystem::temp_directory_path() / ("amk-tuned-" + std::to_string(getpid()) + ".json");
  std::ofstream(path) << bytes;
  const auto entries = load_tuned_configs(path);
  std::filesystem::remove(path);
  REQUIRE(!entries);
  return entries.error();
}

}  // namespace

TEST_CASE("every tuned config is proved and fits its GPU") {
  const auto entries = shipped();
  CHECK(entries.size() >= 10);
  std::map<std::pair<std::string, std::string>, double> fastest;
  for (const TunedConfig& e : entries) {
    CAPTURE(e.model);
    CAPTURE(e.gpu);
    const auto workload = amk::test::opened(e.model, e.gpu.c_str());
    const auto canonical = workload->canonical(e.config);
    REQUIRE_MESSAGE(canonical, (canonical ? "" : canonical.error().message));
    const auto us = workload->predict_us(*canonical);  // lowers, proves, plans
    REQUIRE_MESSAGE(us, (us ? "" : us.error().message));
    if (e.context > 256) continue;  // predictions are of 256 positions
    // The cost model is fitted to within some percent; an entry that is far from it names another config than was measured.
    CHECK(std::abs(*us / e.latency_us - 1) < 0.25);
    double& best = fastest.try_emplace({e.model, e.gpu}, e.latency_us).first->second;
    best = std::min(best, e.latency_us);
  }
  for (const auto& [of, us] : fastest) {
    const auto tuned = amk::test::opened(of.first, of.second.c_str())->tuned();
    REQUIRE(tuned);
    CHECK((*tuned)["latency_us"] == us);
  }
}

TEST_CASE("of each context the fastest entry of a model and GPU") {
  const auto entry = [](const char* model, const char* gpu, double us, int context) {
    return TunedConfig{model, gpu, Json::object(), us, "x", context};
  };
  const std::vector<TunedConfig> entries = {entry("a", "h200", 9, 8192), entry("a", "h200", 3, 256), entry("b", "h200", 1, 256),
                                            entry("a", "h100", 1, 256),  entry("a", "h200", 2, 256), entry("a", "h200", 7, 8192),
                                            entry("a", "h200", 8, 8192)};
  const auto of = fastest_by_context(entries, "a", "h200");
  REQUIRE(of.size() == 2);
  CHECK(of[0]->latency_us == 2);
  CHECK(of[1]->latency_us == 7);
  CHECK(of[1]->context == 8192);
  CHECK(fastest_by_context(entries, "a", "a100").empty());
}

TEST_CASE("configs for longer contexts stand beside the one for the context that is timed") {
  const auto tuned = amk::test::opened("llama-3.2-1b", "h200")->tuned();
  REQUIRE(tuned);
  REQUIRE(tuned->contains("longer_contexts"));
  for (const Json& e : (*tuned)["longer_contexts"]) {
    CHECK(e["context"] > 256);
    CHECK(e["latency_us"] > (*tuned)["latency_us"]);
    CHECK(e["config"] != (*tuned)["config"]);
  }
}

TEST_CASE("where nothing was measured nothing is tuned") {
  CHECK(amk::test::opened("toy", "h200")->tuned() == Json(nullptr));
  CHECK(amk::test::opened("llama-3.2-1b", "a100")->tuned() == Json(nullptr));
  CHECK(amk::test::opened("det_gemm:fwd:128x128x128", "h200")->tuned() == Json(nullptr));
}

TEST_CASE("a damaged table of tuned configs is named, with the entry and the field") {
  const std::string good = R"({"model":"toy","gpu":"h200","config":{},"latency_us":1,"evidence":"x"})";
  const auto table = [](const std::string& entry) { return R"({"schema":"amk.megakernel.tuned/1","entries":[)" + entry + "]}"; };
  CHECK(refusal("[]").kind == ErrorKind::Corrupt);
  CHECK(refusal(R"({"schema":"amk.megakernel.tuned/2","entries":[]})").kind == ErrorKind::Corrupt);
  const auto names = [&](const std::string& entry, const char* field) {
    const Error error = refusal(table(good + "," + entry));
    CHECK(error.kind == ErrorKind::Corrupt);
    CHECK(error.message.find("entry 1") != std::string::npos);
    CHECK(error.data["field"] == field);
  };
  names(R"({"gpu":"h200","config":{},"latency_us":1,"evidence":"x"})", "model");
  names(R"({"model":"toy","gpu":7,"config":{},"latency_us":1,"evidence":"x"})", "gpu");
  names(R"({"model":"toy","gpu":"h200","config":{},"latency_us":0,"evidence":"x"})", "latency_us");
  names(R"({"model":"toy","gpu":"h200","config":{},"latency_us":"fast","evidence":"x"})", "latency_us");
  names(R"({"model":"toy","gpu":"h200","config":{},"latency_us":1,"evidence":""})", "evidence");
  names(R"({"model":"toy","gpu":"h200","config":{"pipelining_depth":-1},"latency_us":1,"evidence":"x"})", "pipelining_depth");
  names(R"({"model":"toy","gpu":"h200","config":{},"latency_us":1,"evidence":"x","speed":2})", "entry");
  names(R"({"model":"toy","gpu":"h200","config":{},"latency_us":1,"evidence":"x","context":0})", "context");
  names(R"({"model":"toy","gpu":"h200","config":{},"latency_us":1,"evidence":"x","context":256.5})", "context");
}
