#include "bench/replay/runs/siblings.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>

#include "bench/replay/runs/medians.h"
#include "bench/replay/runs/replay.h"
#include "core/base/json.h"
#include "tests/support/temp_folder.h"

using namespace amk;

namespace {

// Costs 1 + 10 a + b at a, b of 0 to `n` - 1; a = 0 fails, and (n - 1, n - 1) has no row.
RecordedSpace grid(const test::TempFolder& folder, const std::string& name, int n, const std::string& second = "b") {
  const std::filesystem::path file = folder.path / (name + ".tsv");
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << "a\t" << second << "\tstatus\truntimes_ms\n";
  for (int a = 0; a < n; ++a)
    for (int b = 0; b < n; ++b) {
      if (a == n - 1 && b == n - 1) continue;
      out << a << "\t" << b << "\t";
      if (a == 0)
        out << "compile\t\n";
      else
        out << "ok\t" << 1 + 10 * a + b << "," << 1 + 10 * a + b << "\n";
    }
  out.close();
  auto loaded = RecordedSpace::load(file);
  REQUIRE(loaded);
  return std::move(*loaded);
}

std::vector<std::optional<double>> costs_of(const std::vector<Observation>& rows) {
  std::vector<std::optional<double>> out;
  for (const Observation& o : rows) out.push_back(o.cost);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

TEST_CASE("rows of a recording: all, by lot, of a search, told falsely") {
  const test::TempFolder folder;
  const RecordedSpace s = grid(folder, "s", 6);
  const auto rows = recorded_rows(s);
  REQUIRE(rows.size() == 35);
  for (const Observation& o : rows) CHECK(o.cost == (o.point[0] == 0 ? std::nullopt : std::optional(1.0 + 10 * o.point[0] + o.point[1])));

  const auto ten = rows_by_lot(rows, 10, 3);
  std::set<Point> points;
  for (const Observation& o : ten) {
    points.insert(o.point);
    CHECK(o.cost == s.true_cost(o.point));
  }
  CHECK(points.size() == 10);
  CHECK(rows_by_lot(rows, 100, 3).size() == 35);
  const auto differ = [](const std::vector<Observation>& a, const std::vector<Observation>& b) {
    return !std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return x.point == y.point && x.cost == y.cost; });
  };
  CHECK(differ(ten, rows_by_lot(rows, 10, 4)));
  CHECK(!differ(ten, rows_by_lot(rows, 10, 3)));

  points.clear();
  const auto searched = searched_rows(s, 12, 1);
  for (const Observation& o : searched) {
    points.insert(o.point);
    CHECK(o.cost == s.true_cost(o.point));  // its samples are alike
  }
  CHECK(points.size() == 12);
  CHECK(searched_rows(s, 100, 1).size() == 35);  // then it is exhausted

  for (const Observation& o : told_falsely(s, rows, Lie::Inverted, 1))
    CHECK(o.cost == (o.point[0] == 0 ? std::nullopt : std::optional(1 / (1.0 + 10 * o.point[0] + o.point[1]))));
  const auto shuffled = told_falsely(s, rows, Lie::Shuffled, 1);
  CHECK(costs_of(shuffled) == costs_of(rows));
  CHECK(differ(shuffled, rows));
  for (std::size_t i = 0; i < rows.size(); ++i) CHECK(shuffled[i].point == rows[i].point);
  const auto reversed = told_falsely(s, rows, Lie::Reversed, 1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK(reversed[i].cost == rows[i].cost);
    CHECK(reversed[i].point == Point{static_cast<std::uint16_t>(5 - rows[i].point[0]), static_cast<std::uint16_t>(5 - rows[i].point[1])});
  }
  const auto permuted = told_falsely(s, rows, Lie::Permuted, 1);
  CHECK(differ(permuted, rows));
  CHECK(differ(permuted, told_falsely(s, rows, Lie::Permuted, 2)));
  for (std::size_t i = 0; i < rows.size(); ++i)  // one choice for one choice
    for (std::size_t j = 0; j < rows.size(); ++j)
      for (const int k : {0, 1}) CHECK((rows[i].point[k] == rows[j].point[k]) == (permuted[i].point[k] == permuted[j].point[k]));
}

TEST_CASE("a prior knows a sibling's rows by the values of their knobs, where the space has such a point") {
  const test::TempFolder folder;
  const RecordedSpace target = grid(folder, "target", 5), sibling = grid(folder, "sibling", 7), stranger = grid(folder, "stranger", 5, "c");
  CHECK(siblings(target, sibling));
  CHECK(!siblings(target, stranger));
  const auto prior = prior_from(target, sibling, recorded_rows(sibling), 1);
  REQUIRE(prior);
  CHECK(prior->known_best(3) == std::vector<Point>{{1, 0}, {1, 1}, {1, 2}});
  for (const Point& p : prior->known_best(100)) {
    CHECK(target.space().in_range(p));
    CHECK(target.space().violated(p) == nullptr);  // (4, 4) has no row, the sibling's has
  }
  CHECK(prior->known_best(100).size() == 24);
}

TEST_CASE("a configuration is seen alike by all runs of a seed, and otherwise by those of another") {
  const test::TempFolder folder;
  const std::filesystem::path file = folder.path / "noisy.tsv";
  std::ofstream(file) << "a\tstatus\truntimes_ms\n1\tok\t1,2,3,4,5,6,7,8,9\n2\tok\t11,12,13,14,15,16,17,18,19\n";
  const auto noisy = RecordedSpace::load(file);
  REQUIRE(noisy);
  std::set<double> seen;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto cost = seen_cost(*noisy, {0}, 1, seed);
    REQUIRE(cost);
    CHECK(cost == seen_cost(*noisy, {0}, 1, seed));
    seen.insert(*cost);
  }
  CHECK(seen.size() > 4);
}

TEST_CASE("a ratio of medians: order statistics, a limit for what never got there, and an interval over pairs") {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  CHECK(ordered({5, kNever, 1}, 0.5) == 5);
  CHECK(ordered({kNever, kNever, 1}, 0.5) == kNever);
  std::vector<double> cold, late, noisy, never(101, kNever);
  Rng rng(5);
  for (int i = 0; i < 101; ++i)
    cold.push_back(20.0 + static_cast<double>(rng.below(61))), late.push_back(cold.back() + 5),
        noisy.push_back(20.0 + static_cast<double>(rng.below(61)));
  const MedianRatio same = median_ratio(cold, cold, 300);
  CHECK(same.ratio == 1);
  CHECK(same.low == 1);
  CHECK(same.high == 1);
  // Late by five in every pair: the doubt is that of the median alone, however much the runs differ.
  const MedianRatio paired = median_ratio(late, cold, 300);
  CHECK(paired.ratio == (ordered(cold, 0.5) + 5) / ordered(cold, 0.5));
  CHECK(paired.high - paired.low < 0.05);
  const MedianRatio unpaired = median_ratio(noisy, cold, 300);
  CHECK(unpaired.high - unpaired.low > 0.2);
  CHECK(unpaired.low < 1);
  CHECK(unpaired.high > 1);
  CHECK(median_ratio(never, cold, 300).ratio == 300 / ordered(cold, 0.5));
}
