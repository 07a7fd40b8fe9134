#include <algorithm>
#include <fstream>

#include "orchestrator/results/results.h"
#include "tests/unit/campaign/fixture.h"

using namespace amk;
using namespace amk::test;

namespace {

ImportReport import_text(Lab& lab, const std::string& text) {
  const auto path = lab.folder.path / "in";
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  return must(import_results(*lab.store, path, "elsewhere"));
}

const std::string kHeader =
    "experiment\ttag\tloop\tmodel\tgpu\tregime\tcorrectness\tlatency_us\tpct_of_roofline\tschedule_id\tkernel_id\tdescription\n";

}  // namespace

TEST_CASE("the twelve columns of another tool; wrong lines are refused alone") {
  Lab lab;
  const ImportReport report = import_text(
      lab, kHeader + "1\tbaseline\tschedule\tSmolLM2\trtx5090\tsingle-stream\tPASS\t24.3\t78.5\tsch_aa\t\tmeasured C:\\temp\n" +
               "2\tkept\tschedule\tSmolLM2\trtx5090\tsingle-stream\tPASS\t20.1\t\tsch_bb\t\tx\r\n" +  // Windows line ends
               "\n" + "3\trejected\tschedule\tSmolLM2\trtx5090\tsingle-stream\tREJECTED\t\t\tsch_cc\t\tno\n" +
               "4\tkept\tschedule\tSmolLM2\trtx5090\tsingle-stream\tFAIL\t12.0\t\tsch_dd\t\tlatency without a pass\n" +
               "5\tkept\tschedule\tSmolLM2\trtx5090\tsingle-stream\t\t12.0\t\tsch_ee\t\tno correctness\n" + "6\tkept\tschedule\tSmolLM2\n" +
               "7\tkept\tschedule\tSmolLM2\trtx5090\tsingle-stream\tPASS\tfast\t\tsch_ff\t\tno number\n" +
               "8\tkept\tschedule\tSmolLM2\trtx5090\tsingle-stream\tPASS\t-3\t\tsch_gg\t\tnegative\n" +
               "9\tkept\tschedule\tSmolLM2\trtx5090\tsingle-stream\tPASS\tnan\t\tsch_hh\t\tnot finite\n" +
               "10\tkept\tschedule\tSm\xff\trtx5090\tsingle-stream\tPASS\t1\t\tsch_ii\t\tnot UTF-8\n" +
               "11\tkept\tschedule\tSmolLM2\trtx5090\tsing");  // torn
  CHECK(report.rows == 3);
  CHECK(report.refused_count == 8);
  CHECK(report.refused[0].line == 6);
  CHECK(report.refused[0].why.find("correctness FAIL") != std::string::npos);
  const auto rows = must(foreign_rows(*lab.store, "SmolLM2", "rtx5090", 10));
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].latency_us == 24.3);
  CHECK(rows[0].bound_us == doctest::Approx(24.3 * 0.785));
  CHECK(rows[0].source == "elsewhere");
  CHECK_FALSE(rows[2].latency_us);
  // Another tool escapes nothing, so nothing is unescaped.
  ResultsQuery q;
  q.foreign = true;
  q.sort = ResultsSort::Oldest;
  CHECK(must(Results(*lab.store).page(q)).rows[0]["description"] == "measured C:\\temp");
}

TEST_CASE("JSON lines of another tool, twice: the second time everything is a duplicate") {
  Lab lab;
  const std::string text =
      std::string() +
      R"({"model": "SmolLM2", "gpu": "h100", "regime": "single-stream", "correctness": "PASS", "latency_us": 24.3, "bound_us": 10.0, "pct_of_roofline": 41.2, "schedule": {"tile": 8}, "ir_version": "1", "abi_version": "2", "notes": "n", "ts": 1700000000.5})"
      "\n"
      R"({"model": "SmolLM2", "gpu": "h100", "correctness": "PASS", "latency_us": NaN})"
      "\n"
      R"({"model": "SmolLM2", "model": "x", "gpu": "h100", "correctness": "PASS"})"
      "\n"
      R"({"gpu": "h100", "correctness": "PASS"})"
      "\n"
      R"({"model": "SmolLM2", "gpu": "h100", "correctness": "PASS", "schedule": 3})"
      "\n"
      R"([1])"
      "\n" +
      "{\"model\": \"" + std::string(2 << 20, 'x') + "\"}\n" + R"({"model": "SmolLM2", "gpu": "h100", "correctness": "PASS", "latency_us": 30)";
  const ImportReport first = import_text(lab, text);
  CHECK(first.rows == 1);
  CHECK(first.refused_count == 7);
  const ImportReport second = import_text(lab, text);
  CHECK(second.rows == 0);
  CHECK(second.duplicates == 1);
  const auto rows = must(foreign_rows(*lab.store, "", "", 10));
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].config == Json{{"tile", 8}});
}

TEST_CASE("files that are neither are refused whole") {
  Lab lab;
  const auto path = lab.folder.path / "in";
  std::ofstream(path) << "hello\tworld\n";
  CHECK(import_results(*lab.store, path, "x").error().kind == ErrorKind::InvalidArgument);
  CHECK(import_results(*lab.store, lab.folder.path / "none", "x").error().kind == ErrorKind::NotFound);
  CHECK(import_results(*lab.store, lab.folder.path, "x").error().kind == ErrorKind::NotFound);
  CHECK(import_text(lab, "").rows == 0);
}

TEST_CASE("foreign rows page in every order and never become a best") {
  Lab lab;
  std::string text = kHeader;
  for (int n = 0; n < 30; ++n)
    text += std::to_string(n) + "\tkept\tschedule\tm" + std::to_string(n % 2) + "\th100\tr\tPASS\t" + std::to_string(10 + n % 5) + "\t\ts" +
            std::to_string(n) + "\t\td\n";
  CHECK(import_text(lab, text).rows == 30);
  for (const ResultsSort sort : {ResultsSort::Newest, ResultsSort::Oldest, ResultsSort::Fastest, ResultsSort::Slowest}) {
    ResultsQuery q;
    q.foreign = true;
    q.workload = "m1";
    q.sort = sort;
    q.limit = 4;
    std::vector<std::pair<double, std::string>> seen;
    do {
      const auto page = must(Results(*lab.store).page(q));
      for (const Json& row : page.rows) seen.emplace_back(row["latency_us"], row["schedule_id"]);
      q.cursor = page.next_cursor;
    } while (!q.cursor.empty());
    CHECK(seen.size() == 15);
    for (std::size_t i = 1; i < seen.size(); ++i) {
      if (sort == ResultsSort::Fastest) CHECK(seen[i - 1].first <= seen[i].first);
      if (sort == ResultsSort::Slowest) CHECK(seen[i - 1].first >= seen[i].first);
    }
    std::sort(seen.begin(), seen.end());
    CHECK(std::unique(seen.begin(), seen.end()) == seen.end());
  }
  CHECK(must(lab.service->status(std::nullopt))["best"].is_null());
  CHECK(must(Results(*lab.store).best()).empty());
}

TEST_CASE("texts that are too long are cut at a character's end: what is stored stays UTF-8") {
  Lab lab;
  // 4,095 bytes, then characters of two, three and four bytes that cross the limit of 4,096.
  for (const std::string cross : {"\u00e9", "\u20ac", "\U0001F600"}) {
    const std::string text = std::string(4095, 'a') + cross + "b";
    const auto path = lab.folder.path / "in";
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        << R"({"model": "m", "gpu": "g", "correctness": "PASS", "latency_us": 1.5, "kernel_id": ")" << cross << R"(", "notes": ")" << text << "\"}\n";
    CHECK(must(import_results(*lab.store, path, std::string(255, 's') + cross)).rows == 1);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << kHeader << "1\tkept\tl\tm\tg\tr\tPASS\t2.5\t\ts\t" << cross << "\t" << text << "\n";
    CHECK(must(import_results(*lab.store, path, std::string(255, 's') + cross)).rows == 1);
  }
  ResultsQuery q;
  q.foreign = true;
  const auto page = must(Results(*lab.store).page(q));
  REQUIRE(page.rows.size() == 6);
  for (const Json& row : page.rows) {
    CHECK_NOTHROW((void)row.dump());  // strict: throws on what is not UTF-8
    CHECK(row.at("description") == std::string(4095, 'a'));
  }
  for (const ForeignRow& row : must(foreign_rows(*lab.store, "", "", 10))) CHECK(row.source == std::string(255, 's'));
}
