// Results::series against the state machine's own replay.
#include "core/base/random.h"
#include "orchestrator/results/results.h"
#include "tests/unit/campaign/fixture.h"

using namespace amk;
using namespace amk::test;

namespace {

struct Course {
  std::vector<SeriesPoint> points;
  std::int64_t upto = 0;
};
Course course(Store& store, CampaignId id, std::int64_t after = 0) {
  Course out;
  out.upto = must(Results(store).series(id, after, [&](const SeriesPoint& p) { out.points.push_back(p); }));
  return out;
}

}  // namespace

TEST_CASE("every ended experiment once, in the order of ends, as replay tells it") {
  Lab lab(CampaignPolicy{0, -1, {}, {}});
  const CampaignId other = must(lab.service->open({"small", "h100", "cpu", "bf16-b1"}, {0, -1, {}, {}})).id;
  const CampaignId mine = lab.campaign;
  Rng rng(11);
  for (int n = 0; n < 200; ++n) {
    lab.campaign = rng.below(3) == 0 ? other : mine;
    lab.run(rng.below(4) == 0 ? bad(config(n), static_cast<VerdictStatus>(1 + rng.below(5))) : verdict_of(config(n), 40 + 40 * rng.uniform()));
  }
  const Course all = course(*lab.store, mine);
  std::size_t i = 0;
  const std::int64_t upto = must(lab.service->replay(mine, 0, [&](const Experiment& e) {
    REQUIRE(i < all.points.size());
    const SeriesPoint& p = all.points[i++];
    CHECK(p.experiment == e.id);
    CHECK(p.outcome == *e.outcome);
    CHECK(p.latency_us == e.latency_us);
    CHECK(p.bound_us == e.bound_us);
    CHECK(p.predicted == (e.latency_kind == "predicted"));
    CHECK(p.quarantined == e.quarantined);  // bound 50: some came out below it
    CHECK_FALSE(p.mad_us);
    return true;
  }));
  CHECK(i == all.points.size());
  CHECK(all.upto == upto);
  const Course tail = course(*lab.store, mine, all.points[40].end_seq);
  CHECK(tail.points.size() == all.points.size() - 41);
  CHECK(tail.points.front().experiment == all.points[41].experiment);
  const Course none = course(*lab.store, mine, upto);
  CHECK(none.points.empty());
  CHECK(none.upto == upto);
}

TEST_CASE("noise comes with what was kept, when it was measured") {
  Lab lab({0, -1, {}, {}}, "cuda");
  Verdict first = measured(config(1), 100, "", 1, 1), slower = measured(config(2), 120, id_of(config(1)), 0.8, 0.9);
  first.noise = Noise{0.25, 64, 8, 1900, false};
  slower.noise = Noise{0.5, 64, 8, 1900, false};
  lab.run(first);
  lab.run(slower);
  const Course c = course(*lab.store, lab.campaign);
  REQUIRE(c.points.size() == 2);
  CHECK(c.points[0].outcome == Outcome::Kept);
  CHECK(*c.points[0].mad_us == 0.25);
  CHECK_FALSE(c.points[0].predicted);
  CHECK(c.points[1].outcome == Outcome::Revert);
  CHECK_FALSE(c.points[1].mad_us);
}
