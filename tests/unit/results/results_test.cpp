#include "orchestrator/results/results.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "core/base/number_text.h"
#include "core/base/random.h"
#include "orchestrator/results/formats.h"
#include "orchestrator/store/failpoint.h"
#include "tests/support/comma_locale.h"
#include "tests/unit/campaign/fixture.h"

using namespace amk;
using namespace amk::test;

namespace {

std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

// Three campaigns with all kinds of outcomes; what ended is kept aside for comparison.
struct Filled : Lab {
  Filled() : Lab(CampaignPolicy{0, -1, {}, {}}) {
    std::vector<CampaignId> ids{campaign, must(service->open({"toy", "h200", "cpu", "bf16-b1"}, {0, -1, {}, {}})).id,
                                must(service->open({"small", "h100", "cpu", "bf16-b1"}, {0, -1, {}, {}})).id};
    Rng rng(7);
    for (int n = 0; n < 120; ++n) {
      campaign = ids[rng.below(3)];
      clock.advance_us(1'000'000);
      Verdict v = verdict_of(config(n), 60 + static_cast<double>(rng.below(40)));  // few latencies: many ties
      if (rng.below(4) == 0) v = bad(config(n), static_cast<VerdictStatus>(1 + rng.below(5)));
      all.push_back(run(v).experiment);
    }
    campaign = ids[0];
  }
  std::vector<Experiment> all;
};

std::vector<std::string> walk(const Results& results, ResultsQuery query) {
  std::vector<std::string> ids;
  for (int guard = 0; guard < 1000; ++guard) {
    const ResultsPage page = must(results.page(query));
    CHECK(page.rows.size() <= static_cast<std::size_t>(query.limit));
    for (const Json& row : page.rows) ids.push_back(row["experiment"]);
    if (page.next_cursor.empty()) return ids;
    query.cursor = page.next_cursor;
  }
  FAIL("pages without end");
  return ids;
}

}  // namespace

TEST_CASE("pages: every order and filter gives exactly the rows that a plain sort of all of them gives") {
  Filled lab;
  const Results results(*lab.store);
  std::vector<ResultsQuery> queries(1);
  {
    ResultsQuery q;
    q.workload = "toy";
    queries.push_back(q);
    q.gpu = "h200";
    queries.push_back(q);
    q = {};
    q.campaign = lab.campaign;
    q.outcomes = {Outcome::Revert, Outcome::Kept};
    queries.push_back(q);
    q = {};
    q.latency_kind = "predicted";
    queries.push_back(q);
    q = {};
    q.since_wall_us = lab.all[30].ended_wall_us;
    q.until_wall_us = lab.all[60].ended_wall_us;
    queries.push_back(q);
    q = {};
    q.schedule_id = lab.all[5].schedule_id;
    queries.push_back(q);
    q = {};
    q.workload = "nobody";
    queries.push_back(q);
  }
  for (ResultsQuery query : queries)
    for (const ResultsSort sort : {ResultsSort::Newest, ResultsSort::Oldest, ResultsSort::Fastest, ResultsSort::Slowest})
      for (const int limit : {1, 7, 200}) {
        query.sort = sort;
        query.limit = limit;
        const bool latency = sort == ResultsSort::Fastest || sort == ResultsSort::Slowest;
        std::vector<Experiment> expected;
        for (const Experiment& e : lab.all) {
          const CampaignKey key = must(lab.service->info(e.campaign)).key;
          if (latency && !e.latency_us) continue;
          if (!query.workload.empty() && key.workload != query.workload) continue;
          if (!query.gpu.empty() && key.gpu != query.gpu) continue;
          if (query.campaign && e.campaign != *query.campaign) continue;
          if (!query.outcomes.empty() && std::find(query.outcomes.begin(), query.outcomes.end(), *e.outcome) == query.outcomes.end()) continue;
          if (!query.latency_kind.empty() && e.latency_kind != query.latency_kind) continue;
          if (!query.schedule_id.empty() && e.schedule_id != query.schedule_id) continue;
          if (query.since_wall_us && e.ended_wall_us < *query.since_wall_us) continue;
          if (query.until_wall_us && e.ended_wall_us >= *query.until_wall_us) continue;
          expected.push_back(e);
        }
        std::stable_sort(expected.begin(), expected.end(), [&](const Experiment& a, const Experiment& b) {
          if (sort == ResultsSort::Fastest) return *a.latency_us < *b.latency_us;
          if (sort == ResultsSort::Slowest) return *a.latency_us > *b.latency_us;
          return sort == ResultsSort::Newest ? raw(a.id) > raw(b.id) : raw(a.id) < raw(b.id);
        });
        std::vector<std::string> ids;
        for (const Experiment& e : expected) ids.push_back(to_string(e.id));
        CAPTURE(static_cast<int>(sort));
        CAPTURE(limit);
        CHECK(walk(results, query) == ids);
      }
}

TEST_CASE("cursors are bound to their query; others are refused") {
  Filled lab;
  const Results results(*lab.store);
  ResultsQuery q;
  q.limit = 5;
  const std::string cursor = must(results.page(q)).next_cursor;
  q.cursor = cursor;
  q.limit = 9;  // another page size is fine
  CHECK(must(results.page(q)).rows.size() == 9);
  q.sort = ResultsSort::Fastest;
  CHECK(results.page(q).error().kind == ErrorKind::InvalidArgument);
  q.sort = ResultsSort::Newest;
  for (std::string wrong : {std::string("x"), cursor + "0", cursor.substr(0, 44), std::string(45, 'r'), "r" + std::string(44, 'f')}) {
    q.cursor = wrong;
    CAPTURE(wrong);
    REQUIRE_FALSE(results.page(q));
    CHECK(results.page(q).error().data["field"] == "cursor");
  }
}

TEST_CASE("queries are read by name") {
  const auto q = must(results_query_from_json(
      {{"model", "toy"}, {"outcome", "kept"}, {"kind", "predicted"}, {"sort", "-latency_us"}, {"limit", 3}, {"campaign", "c2"}}));
  CHECK(q.workload == "toy");
  CHECK(q.outcomes == std::vector{Outcome::Kept});
  CHECK(q.sort == ResultsSort::Slowest);
  CHECK(q.campaign == CampaignId{2});
  for (const Json& wrong :
       {Json{{"modle", "x"}}, Json{{"limit", 0}}, Json{{"limit", 201}}, Json{{"limit", "5"}}, Json{{"sort", "name"}}, Json{{"kind", "guess"}},
        Json{{"outcome", "good"}}, Json{{"campaign", "2"}}, Json{{"campaign", "c02"}}, Json{{"campaign", 2}}, Json::array()}) {
    CAPTURE(wrong.dump());
    REQUIRE_FALSE(results_query_from_json(wrong));
    CHECK(results_query_from_json(wrong).error().data.contains("field"));
  }
}

TEST_CASE("best, groups and diffs") {
  Filled lab;
  const Results results(*lab.store);
  const Json best = must(results.best());
  CHECK(best.size() == 3);
  for (const Json& b : best) {
    double fastest_kept = 1e9;
    for (const Experiment& e : lab.all)
      if (to_string(e.campaign) == b["campaign"].get<std::string>() && e.outcome == Outcome::Kept)
        fastest_kept = *e.latency_us;  // the last kept is the fastest
    CHECK(b["latency_us"] == fastest_kept);
  }
  std::int64_t total = 0;
  for (const Json& group : must(results.grouped("model"))) total += group["experiments"].get<std::int64_t>();
  CHECK(total == 120);
  const Json outcomes = must(results.grouped("outcome"));
  for (const Json& o : outcomes)
    CHECK(o["experiments"] == std::count_if(lab.all.begin(), lab.all.end(), [&](const Experiment& e) {
            return to_string(*e.outcome) == o["outcome"].get_ref<const std::string&>();
          }));
  CHECK_FALSE(results.grouped("colour"));
  lab.run(1001, 70);
  lab.run(1002, 80);
  const Json diff = must(results.config_diff(id_of(config(1001)), id_of(config(1002))));
  CHECK(diff["differs"] == Json{{"kernel_knobs.cpasync", {false, true}}, {"tile", {1001, 1002}}});
  CHECK(diff["ratio"] == doctest::Approx(70.0 / 80));
  CHECK(results.config_diff("s0", id_of(config(1))).error().kind == ErrorKind::NotFound);
  CHECK(must(results.grouped("workload")) == must(results.grouped("model")));
  ResultsQuery of;
  of.workload = "small";
  const Json small = must(results.best(of));
  REQUIRE(small.size() == 1);
  CHECK(small[0]["model"] == "small");
  of = {};
  of.campaign = CampaignId{99};
  CHECK(results.page(of).error().kind == ErrorKind::NotFound);
}

TEST_CASE("a diff is of one campaign where one has both, and tells what was measured in turn") {
  Lab lab({0, -1, {}, {}}, "cuda");
  const CampaignId first = lab.campaign, second = must(lab.service->open({"small", "h100", "cuda", "bf16-b1"}, {0, -1, {}, {}})).id;
  const std::string plain = id_of(config(1)), better = id_of(config(2)), third = id_of(config(3));
  lab.run(measured(config(1), 100, "", 0, 0));
  lab.run(measured(config(2), 81, plain, 1.24, 1.26));
  lab.campaign = second;  // the plain config once more, later, in another campaign
  lab.run(measured(config(1), 500, "", 0, 0));
  const Results results(*lab.store);
  const Json diff = must(results.config_diff(plain, better));
  CHECK(diff["a"]["latency_us"] == 100.0);
  CHECK(diff["ratio"] == doctest::Approx(100.0 / 81));
  CHECK(diff["in_turn"] == Json{{"ratio", 1.25}, {"ci95", {1.24, 1.26}}});
  const Json back = must(results.config_diff(better, plain));
  CHECK(back["ratio"] == doctest::Approx(81.0 / 100));
  CHECK(back["in_turn"]["ratio"] == doctest::Approx(0.8));
  CHECK(back["in_turn"]["ci95"][0] == doctest::Approx(1 / 1.26));
  // An experiment decides for its campaign.
  CHECK(must(results.config_diff("e3", plain))["ratio"] == 1.0);
  CHECK(must(results.config_diff("e2", plain))["b"]["latency_us"] == 100.0);
  // No campaign has both: no ratio.
  lab.run(measured(config(3), 450, plain, 1.0, 1.02));
  CHECK(must(results.config_diff(third, better))["ratio"].is_null());
  CHECK(must(results.config_diff(third, better))["in_turn"].is_null());
  CHECK(must(results.config_diff(plain, third))["in_turn"]["ratio"] == doctest::Approx(1.01));
  CHECK(to_string(first) == "c1");
}

TEST_CASE("results.tsv and corpus.jsonl follow the store, whatever happens to them") {
  Filled lab;
  auto files = std::make_unique<ResultFiles>(*lab.store);
  must(files->catch_up());
  const auto tsv = files->tsv_path(), corpus = files->corpus_path();
  const auto expect_whole = [&](std::size_t rows) {
    const auto lines = lines_of(slurp(tsv));
    REQUIRE(lines.size() == rows + 1);
    CHECK(lines[0] + "\n" == tsv_header());
    CHECK(std::count(lines[0].begin(), lines[0].end(), '\t') == 16);
    for (std::size_t i = 0; i < lab.all.size(); ++i) {
      const Experiment& e = lab.all[i];
      CHECK(lines[i + 1].find("\t" + e.schedule_id + "\t") != std::string::npos);
      const std::string latency = e.latency_us ? shortest(*e.latency_us) : "";
      CHECK(lines[i + 1].find("\t" + e.correctness + "\t" + latency + "\t") != std::string::npos);
    }
    const auto kept = std::count_if(lab.all.begin(), lab.all.end(), [](const Experiment& e) { return e.outcome == Outcome::Kept; });
    const auto points = lines_of(slurp(corpus));
    CHECK(points.size() == static_cast<std::size_t>(kept));
    for (const std::string& point : points) {
      const Json json = must(parse_json(point, "corpus"));
      CHECK(json["schema_version"] == 1);
      CHECK(json["correctness"] == "PASS");
      CHECK(json["schedule"].is_object());
    }
  };
  const auto quarantined = [&] { return slurp(lab.folder.path / "results.quarantine"); };
  expect_whole(120);
  lab.all.push_back(lab.run(500, 59).experiment);
  must(files->catch_up());
  expect_whole(121);
  const std::string whole = slurp(tsv);

  SUBCASE("a torn line at the end") {
    std::ofstream(tsv, std::ios::app | std::ios::binary) << "122\tkept\tloop\tto";
    files = std::make_unique<ResultFiles>(*lab.store);
    must(files->catch_up());
    CHECK(slurp(tsv) == whole);
    CHECK(quarantined() == "122\tkept\tloop\tto\n");
  }
  SUBCASE("gone, and made beside whoever waits for something else") {
    std::filesystem::remove(tsv);
    files = std::make_unique<ResultFiles>(*lab.store);
    files->catch_up_beside(std::chrono::milliseconds(0));
    lab.all.push_back(lab.run(501, 58).experiment);  // ends meanwhile: the row is there once, whoever wrote it
    files->poke();
    files.reset();
    expect_whole(122);
    files = std::make_unique<ResultFiles>(*lab.store);
    files->catch_up_beside(std::chrono::minutes(1));
    expect_whole(122);
    CHECK(quarantined().empty());
  }
  SUBCASE("cut short") {
    std::filesystem::resize_file(tsv, whole.size() - 40);
    files = std::make_unique<ResultFiles>(*lab.store);
    must(files->catch_up());
    CHECK(slurp(tsv) == whole);
  }
  SUBCASE("an edited line does not survive, and is kept aside") {
    std::string edited = whole;
    const auto at = edited.find("\tFAIL\t");
    edited.replace(at, 6, "\tPASS\t");
    std::ofstream(tsv, std::ios::binary | std::ios::trunc) << edited << "x";
    files = std::make_unique<ResultFiles>(*lab.store);
    must(files->rebuild());
    CHECK(slurp(tsv) == whole);
    CHECK(lines_of(quarantined()).size() == 2);
  }
  SUBCASE("mostly somebody else's: set aside as it is") {
    const std::string foreign(17u << 20, 'x');  // no line of ours is as long
    for (const bool appended : {false, true}) {
      std::ofstream(tsv, std::ios::binary | (appended ? std::ios::app : std::ios::trunc)) << foreign;
      files = std::make_unique<ResultFiles>(*lab.store);
      must(appended ? files->catch_up() : files->rebuild());
      CHECK(slurp(tsv) == whole);
      const auto aside = lab.folder.path / (appended ? "results.tsv.strange2" : "results.tsv.strange");
      CHECK(std::filesystem::file_size(aside) == foreign.size() + (appended ? whole.size() : 0));
    }
    CHECK(quarantined().empty());
  }
  SUBCASE("gone") {
    std::filesystem::remove(tsv);
    std::filesystem::remove(corpus);
    files = std::make_unique<ResultFiles>(*lab.store);
    must(files->catch_up());
    CHECK(slurp(tsv) == whole);
  }
  SUBCASE("rows that ended while nobody appended") {
    for (int n = 600; n < 610; ++n) lab.all.push_back(lab.run(n, 99).experiment);
    std::ofstream(tsv, std::ios::app | std::ios::binary) << "torn";
    files = std::make_unique<ResultFiles>(*lab.store);
    must(files->catch_up());
    expect_whole(131);
    CHECK(quarantined() == "torn\n");
  }
  SUBCASE("an error in the middle of an append is made good by the next one") {
    for (const char* point : {"tsv.append", "tsv.append-torn", "corpus.append", "corpus.append-torn"}) {
      const double best = *must(lab.service->best(lab.campaign))->latency_us;
      lab.all.push_back(lab.run(static_cast<int>(700 + lab.all.size()), best * 0.98).experiment);
      REQUIRE(lab.all.back().outcome == Outcome::Kept);
      must(failpoint::arm(std::string(point) + "=error"));
      CHECK_FALSE(files->catch_up());
      failpoint::disarm();
      must(files->catch_up());
      expect_whole(lab.all.size());
    }
  }
}

TEST_CASE("text that would break a table is escaped, and comes back") {
  Lab lab;
  BeginRequest r;
  r.config = config(1);
  r.schedule_id = id_of(r.config);
  r.description = "tab\there, line\nbreak, back\\slash, \\t literal";
  must(lab.service->finish(must(lab.service->begin(lab.campaign, r)), verdict_of(config(1), 100)));
  ResultFiles files(*lab.store);
  must(files.catch_up());
  CHECK(lines_of(slurp(files.tsv_path())).size() == 2);
  Lab other;
  must(import_results(*other.store, files.tsv_path(), "copy"));
  ResultsQuery q;
  q.foreign = true;
  const auto page = must(Results(*other.store).page(q));
  REQUIRE(page.rows.size() == 1);
  CHECK(page.rows[0]["description"] == r.description);
  CHECK(page.rows[0]["latency_us"] == 100.0);
  CHECK(page.rows[0]["latency_kind"] == "predicted");
  CHECK(must(other.service->status(other.campaign))["best"].is_null());
}

TEST_CASE("tables are the same in a locale with a comma, written and read") {
  const auto written = [] {
    Lab lab;
    BeginRequest r;
    r.config = config(1);
    r.schedule_id = id_of(r.config);
    must(lab.service->finish(must(lab.service->begin(lab.campaign, r)), verdict_of(config(1), 1234.5625)));
    ResultFiles files(*lab.store);
    must(files.catch_up());
    Lab other;
    must(import_results(*other.store, files.tsv_path(), "copy"));
    ResultsQuery q;
    q.foreign = true;
    CHECK(must(Results(*other.store).page(q)).rows.at(0)["latency_us"] == 1234.5625);
    const std::string line = lines_of(slurp(files.tsv_path()))[1];
    CHECK(line.find("\t1234.5625\t") != std::string::npos);
    return line.substr(0, line.find("\tc1\t"));  // behind it are the verdict's id and the time
  };
  const std::string plain = written();
  const CommaLocale comma;
  if (!comma.there()) MESSAGE("skipped: no locale with a comma");
  CHECK(written() == plain);
}

TEST_CASE("exports hold what the query holds") {
  Filled lab;
  const Results results(*lab.store);
  ResultsQuery q;
  q.workload = "toy";
  q.sort = ResultsSort::Oldest;
  const auto expected = walk(results, q).size();
  const auto path = lab.folder.path / "out";
  CHECK(must(results.export_to(path, Results::Format::Tsv, q)) == static_cast<std::int64_t>(expected));
  CHECK(lines_of(slurp(path)).size() == expected + 1);
  must(results.export_to(path, Results::Format::Jsonl, q));
  const auto lines = lines_of(slurp(path));
  CHECK(lines.size() == expected);
  for (const std::string& line : lines) CHECK(must(parse_json(line, "line"))["model"] == "toy");
  must(results.export_to(path, Results::Format::Csv, q));
  CHECK(lines_of(slurp(path)).size() == expected + 1);
  CHECK(csv_line({"a", "b,c", "d\"e", "f\ng"}) == "a,\"b,c\",\"d\"\"e\",\"f\ng\"\r\n");
  // No formula of a stranger's; numbers stay numbers.
  CHECK(csv_line({"=1+1", "+x", "-1.5", "-1.5e3", "@a", "-", "\t=1", "a=1", "=HYPERLINK(\"http://x\",\"y\")"}) ==
        "'=1+1,'+x,-1.5,-1.5e3,'@a,'-,'\t=1,a=1,\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\"\r\n");
  // A page's rows have the same fields as the experiments, whatever each lacks.
  ResultsQuery all;
  all.sort = ResultsSort::Oldest;
  all.limit = kLargestPage;
  const auto rows = must(results.page(all)).rows;
  REQUIRE(rows.size() == lab.all.size());
  for (std::size_t i = 0; i < rows.size(); ++i) CHECK(tsv_fields(rows[i]) == tsv_fields(lab.all[i], must(lab.service->info(lab.all[i].campaign))));
}
