// Tuning on a miss, on a device that is played: what is tried, what is kept, what happens when it goes wrong.
#include "kernels/det_gemm/autotune.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

#include "core/base/json.h"
#include "kernels/det_gemm/defaults.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/det_gemm/targets.h"

using namespace amk;
using namespace amk::det_gemm;

namespace {

struct Played final : TuneDevice {
  std::vector<Plan> ran;
  int opened = 0, closed = 0;
  std::function<Result<Trial>(const Plan&, int)> answer = [](const Plan&, int i) { return Trial{true, 100.0 - i, {}}; };
  Status opening;
  std::string gpu() const override { return "a played card"; }
  Status open(const Problem&, std::span<const Plan>) override {
    ++opened;
    return opening;
  }
  // What it answers is a time on a quiet card; `crowd` is how many times as long everything takes from now on.
  double crowd = 1;
  std::vector<double> quiet_us;
  std::vector<Config> best;  // that each was timed in turn with, from the first that was
  Result<Trial> run(const Plan& plan, const Plan* beside) override {
    ran.push_back(plan);
    auto trial = answer(plan, static_cast<int>(ran.size()) - 1);
    quiet_us.push_back(trial ? trial->us : 0);
    if (!trial || !trial->correct) return trial;
    if (beside != nullptr) {
      best.push_back(beside->config);
      for (std::size_t i = 0; i + 1 < ran.size(); ++i)
        if (ran[i].config == beside->config) trial->speedup = quiet_us[i] / trial->us;
    }
    trial->us *= crowd;
    return trial;
  }
  void close() override { ++closed; }
};

struct Tuned {
  explicit Tuned(TuneLimits limits = {}) {
    auto owned = std::make_unique<Played>();
    device = owned.get();
    tuner = std::make_unique<Autotuner>(std::move(owned), std::move(limits), path);
  }
  Result<Choice> choose(const Problem& p, std::vector<std::string> order = {}) {
    return tuner->choose(p, dense_storage(canonical(p)), gpu(), table, order);
  }
  test::TempFolder folder;
  std::filesystem::path path = folder.path / "cache" / "tuned.json";
  Played* device = nullptr;
  std::unique_ptr<Autotuner> tuner;
  TunedTable table;
};

TuneLimits of(std::size_t candidates) {
  TuneLimits limits;
  limits.candidates = candidates;
  return limits;
}

const Problem kProblem{Op::Fwd, 100, 4096, 4096};

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

TEST_CASE("a miss is tuned once: the fastest correct candidate serves its bucket, here and in the next process") {
  Tuned t(of(5));
  t.device->answer = [](const Plan&, int i) { return Trial{true, i == 3 ? 10.0 : 20.0 + i, {}}; };
  const auto first = t.choose(kProblem);
  REQUIRE_MESSAGE(first, first.error().message);
  REQUIRE(t.device->ran.size() == 5);
  CHECK(t.device->opened == 1);
  CHECK(t.device->closed == 1);
  CHECK(first->implementation == "tuned");
  CHECK(first->exact);
  CHECK(first->origin == "exact bucket m128 n4096 k4096");
  CHECK(first->plan.config == t.device->ran[3].config);
  CHECK(first->plan.shape == canonical(kProblem));
  CHECK(first->warnings.empty());
  for (std::size_t i = 0; i < 5; ++i)
    for (std::size_t j = 0; j < i; ++j) CHECK_FALSE(t.device->ran[i].config == t.device->ran[j].config);
  // The same bucket again, another M of it: nothing is tried.
  const auto second = t.choose({Op::Fwd, 128, 4096, 4096});
  REQUIRE(second);
  CHECK(second->plan.config == first->plan.config);
  CHECK(t.device->ran.size() == 5);
  // Another process reads the file.
  Autotuner next(std::make_unique<Played>(), {}, t.path);
  REQUIRE(next.found().entries().size() == 1);
  const TunedEntry& kept = next.found().entries()[0];
  CHECK(kept.config == first->plan.config);
  CHECK(kept.m == 128);
  CHECK(kept.evidence.at("us") == 10.0);
  CHECK(kept.evidence.at("gpu") == "a played card");
  CHECK(kept.evidence.at("tried") == 5);
  TunedTable table = next.found();
  const auto found = next.choose(kProblem, dense_storage(canonical(kProblem)), gpu(), table, {});
  REQUIRE(found);
  CHECK(found->exact);
}

TEST_CASE("a card that becomes slow, or quiet, between two candidates decides nothing: each is timed in turn with the best so far") {
  for (const double crowd : {10.0, 0.1}) {
    CAPTURE(crowd);
    Tuned t(of(4));
    t.device->answer = [&](const Plan&, int i) {
      constexpr double kUs[] = {20, 10, 15, 12};
      if (i == (crowd > 1 ? 1 : 2)) t.device->crowd = crowd;
      return Trial{true, kUs[i], {}};
    };
    const auto choice = t.choose(kProblem);
    REQUIRE_MESSAGE(choice, choice.error().message);
    REQUIRE(t.device->ran.size() == 4);
    CHECK(choice->plan.config == t.device->ran[1].config);
    CHECK(t.device->best == std::vector<Config>{t.device->ran[0].config, t.device->ran[1].config, t.device->ran[1].config});
  }
}

TEST_CASE("wrong and unbuildable candidates never win, and are counted") {
  Tuned t(of(4));
  t.device->answer = [](const Plan&, int i) -> Result<Trial> {
    if (i == 0) return Trial{false, 0, "3 output words differ"};
    if (i == 1) return fail(ErrorKind::Rejected, "resident: does not fit");
    return Trial{true, 50.0 - i, {}};
  };
  const auto choice = t.choose(kProblem);
  REQUIRE(choice);
  CHECK(choice->plan.config == t.device->ran[3].config);
  const Json evidence = t.table.entries().at(0).evidence;
  CHECK(evidence.at("incorrect") == 1);
  CHECK(evidence.at("rejected") == 1);
  CHECK(evidence.at("tried") == 4);
}

TEST_CASE("no candidate is begun after the time; the first always is") {
  auto now = std::make_shared<std::chrono::steady_clock::time_point>();
  TuneLimits limits = of(16);
  limits.time = std::chrono::milliseconds(100);
  limits.now = [now] { return *now; };
  Tuned t(limits);
  t.device->answer = [now](const Plan&, int i) {
    *now += std::chrono::milliseconds(40);
    return Trial{true, 9.0 - i, {}};
  };
  REQUIRE(t.choose(kProblem));
  CHECK(t.device->ran.size() == 3);  // begun at 0, 40 and 80 ms
  CHECK(t.table.entries().at(0).evidence.at("tried") == 3);
  CHECK(t.table.entries().at(0).evidence.at("candidates") == 16);
  Tuned none([] {
    TuneLimits l;
    l.time = std::chrono::milliseconds(0);
    return l;
  }());
  REQUIRE(none.choose(kProblem));
  CHECK(none.device->ran.size() == 1);
}

TEST_CASE("winners near by are tried first") {
  Tuned t(of(3));
  Config near = candidate_configs(canonical(kProblem), dense_storage(canonical(kProblem)), gpu(), 1000).back();  // the model's last choice
  REQUIRE(make_plan(canonical(kProblem), dense_storage(canonical(kProblem)), near, gpu()));
  TunedEntry entry{"9.0", 132, Op::Fwd, WeightLayout::KN, OutType::Bf16, 0, 64, 4096, 4096, near, {}};
  t.table = TunedTable::parse(tuned_file({entry})).value();
  t.device->answer = [](const Plan&, int i) { return Trial{true, 10.0 + i, {}}; };
  const auto choice = t.choose(kProblem);
  REQUIRE(choice);
  CHECK(t.device->ran.at(0).config == near);
  CHECK(choice->plan.config == near);
  CHECK(choice->exact);
}

TEST_CASE("where tuning fails the call is served without, with a warning, and is not tuned again") {
  const auto failing = [](auto set) {
    Tuned t(of(2));
    set(*t.device);
    const auto choice = t.choose(kProblem);
    REQUIRE_MESSAGE(choice, choice.error().message);
    CHECK(choice->implementation == "default");
    CHECK(t.table.entries().empty());
    CHECK_FALSE(std::filesystem::exists(t.path));
    CHECK(t.device->closed == 1);
    const std::size_t ran = t.device->ran.size();
    const auto again = t.choose(kProblem);
    REQUIRE(again);
    CHECK(t.device->ran.size() == ran);
    CHECK(t.device->opened == 1);
    return choice->warnings.back();
  };
  const std::string bucket = "autotuning fwd kn bf16 chunk 0 m128 n4096 k4096 failed, served without: ";
  CHECK(failing([](Played& d) { d.opening = fail(ErrorKind::Unavailable, "cuMemAlloc: out of memory"); }) == bucket + "cuMemAlloc: out of memory");
  CHECK(failing([](Played& d) {
          d.answer = [](const Plan&, int) { return Trial{false, 0, "7 words differ"}; };
        }) == bucket + "none of 2 candidates was correct, the last: 7 words differ");
  CHECK(failing([](Played& d) {
          d.answer = [](const Plan&, int i) -> Result<Trial> {
            if (i == 1) return fail(ErrorKind::Internal, "CUDA error 700");
            return Trial{true, 5, {}};
          };
        }) == bucket + "CUDA error 700");
}

TEST_CASE("tuning only where tuned schedules were asked for first, and only on a miss") {
  Tuned t;
  for (const std::vector<std::string>& order : {std::vector<std::string>{"default"}, {"mma", "tuned"}, {"strict"}, {"plain"}}) {
    const auto choice = t.choose(kProblem, order);
    REQUIRE_MESSAGE(choice, choice.error().message);
    CHECK(t.device->opened == 0);
  }
  CHECK(t.choose(kProblem, {"fastest"}).error().kind == ErrorKind::InvalidArgument);
  CHECK(t.device->opened == 0);
  REQUIRE(t.choose(kProblem, {"tuned"}));
  CHECK(t.device->opened == 1);
  // Buffers that the bucket's entry cannot serve are no miss: another search would find the same entry.
  Storage odd = dense_storage(canonical(kProblem));
  odd.align_x = 2;
  const auto choice = t.tuner->choose(kProblem, odd, gpu(), t.table, {});
  REQUIRE(choice);
  CHECK(t.device->opened == 1);
  CHECK_FALSE(choice->warnings.empty());
}

TEST_CASE("the local table: entries of other buckets and processes stay, a corrupt file is said, not used, not written") {
  Tuned t(of(2));
  REQUIRE(t.choose(kProblem));
  Autotuner other(std::make_unique<Played>(), of(2), t.path);
  TunedTable table;
  const Problem da{Op::Da, 100, 4096, 4096};
  REQUIRE(other.choose(da, dense_storage(canonical(da)), gpu(), table, {}));
  REQUIRE(t.choose({Op::Fwd, 1, 4096, 4096}));
  const auto loaded = load_local_table(t.path);
  REQUIRE(loaded);
  CHECK(loaded->entries().size() == 3);

  for (const char* broken : {"{", "{\"schema\": \"amk.det_gemm.tuned/1\", \"entries\": [{}]}", ""}) {
    std::ofstream(t.path, std::ios::trunc) << broken;
    auto owned = std::make_unique<Played>();
    Autotuner careful(std::move(owned), of(2), t.path);
    REQUIRE(careful.warnings().size() == 1);
    CHECK(careful.warnings()[0].rfind("the local tuned table is neither used nor written: ", 0) == 0);
    CHECK(careful.found().entries().empty());
    TunedTable empty;
    const auto choice = careful.choose(kProblem, dense_storage(canonical(kProblem)), gpu(), empty, {});
    REQUIRE(choice);
    CHECK(choice->exact);  // tuned in memory all the same
    CHECK(text_of(t.path) == broken);
    CHECK(add_to_local_table(t.path, empty.entries().at(0)).error().kind != ErrorKind::Internal);
    CHECK(text_of(t.path) == broken);
  }
}

TEST_CASE("a table that cannot be written is a warning of the call that found something") {
  test::TempFolder folder;
  std::ofstream(folder.path / "file") << "in the way";
  auto owned = std::make_unique<Played>();
  Autotuner tuner(std::move(owned), of(2), folder.path / "file" / "tuned.json");
  TunedTable table;
  const auto choice = tuner.choose(kProblem, dense_storage(canonical(kProblem)), gpu(), table, {});
  REQUIRE(choice);
  CHECK(choice->exact);
  REQUIRE(choice->warnings.size() == 1);
  CHECK(choice->warnings[0].rfind("what autotuning found is lost when this process ends: open ", 0) == 0);
}
