#include "bench/replay/recorded/recorded_space.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>

#include "orchestrator/strategy/strategy.h"
#include "tests/support/temp_folder.h"

using namespace amk;

namespace {

const std::string kHeader = "a\tb\tstatus\truntimes_ms\n";
const std::string kGood = kHeader + "1\tx\tok\t3,1,2\n2\tx\tok\t4\n2\ty\tcompile\t\n";

class Files {
 public:
  Result<RecordedSpace> load(const std::string& text) {
    const std::filesystem::path file = folder_.path / "s.tsv";
    std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
    return RecordedSpace::load(file);
  }
  // What is said of `text`, from the file's name on.
  std::string refusal(const std::string& text) {
    const auto space = load(text);
    if (space) return "accepted";
    const std::string said = space.error().message, at = "s.tsv";
    CHECK(said.starts_with(folder_.path.string()));
    return said.substr(said.find(at));
  }

 private:
  test::TempFolder folder_;
};

}  // namespace

TEST_CASE("recorded space: choices, costs and the optimum of a file; line ends and marks of other systems") {
  Files files;
  std::string crlf;
  for (const char c : kGood) crlf += c == '\n' ? "\r\n" : std::string(1, c);
  for (const std::string& text : {kGood, crlf, "\xEF\xBB\xBF" + kGood, kGood + "\n\n", kGood.substr(0, kGood.size() - 1),
                                  kHeader + "1\tx\tok\t3,1,2\n2\tx\tok\t4\n2\ty\tcompile\n"}) {
    CAPTURE(text);
    const auto space = files.load(text);
    REQUIRE(space);
    REQUIRE(space->space().knobs.size() == 2);
    CHECK(space->space().knobs[0].choices == std::vector<Json>{1.0, 2.0});
    CHECK(space->space().knobs[1].choices == std::vector<Json>{"x", "y"});
    CHECK(space->optimum() == 2);  // the median of 3, 1, 2
    CHECK(space->true_cost({0, 0}) == 2.0);
    CHECK(space->true_cost({1, 0}) == 4.0);
    CHECK(!space->true_cost({1, 1}));
    CHECK(space->space().violated({0, 1}) != nullptr);  // no row
    CHECK(space->space().violated({1, 1}) == nullptr);
  }
}

TEST_CASE("recorded space: what is wrong is told by file, line and field") {
  Files files;
  const std::string header = "header is ", accepted = "; accepted: parameters, then status, then runtimes_ms, with tabs between them";
  CHECK(files.refusal("") == "s.tsv, line 1, " + header + "[\"\"]" + accepted);
  CHECK(files.refusal("status\truntimes_ms\nok\t1\n") == "s.tsv, line 1, " + header + "[\"status\",\"runtimes_ms\"]" + accepted);
  CHECK(files.refusal("a\ta\tstatus\truntimes_ms\n") == "s.tsv, line 1, " + header + "\"a\"; accepted: each parameter once");
  CHECK(files.refusal("\tb\tstatus\truntimes_ms\n").ends_with("; accepted: a name for every parameter"));
  CHECK(files.refusal(kHeader) == "s.tsv: the header is its only line; a space has at least one row");
  CHECK(files.refusal(kGood + "\n3\tx\ty\tok\t1\n") == "s.tsv, line 6, columns is 5; accepted: 4, as the header has");
  CHECK(files.refusal(kGood + "3\tx\n") == "s.tsv, line 5, columns is 2; accepted: 4, as the header has");
  CHECK(files.refusal(kGood + "3\tx\t\t1\n") == "s.tsv, line 5, status is \"\"; accepted: ok, or what went wrong");
  CHECK(files.refusal(kHeader + "1\tx\tOK\t1\n2\tx\tOK\t1\n") ==
        "s.tsv, status is {\"OK\":2}; accepted: ok in at least one row: without it there is no optimum");
  for (const char* sample : {"", "nan", "inf", "-1", "0", "1e999", "1;2", "1,", "1.0,abc", "0x10", " 1", "\xFF"}) {
    CAPTURE(sample);
    const std::string said = files.refusal(kGood + "3\tx\tok\t" + sample + "\n");
    CHECK(said.starts_with("s.tsv, line 5, runtimes_ms is \""));
    CHECK(said.ends_with("; accepted: of a row that is ok, positive numbers with commas between them"));
  }
  // The same combination again, also where its number is written another way.
  CHECK(files.refusal(kGood + "1.0\tx\tok\t0.5\n") ==
        "s.tsv, line 5, parameters is \"a 1.0, b x\"; accepted: each combination once; this one stands in line 2");
  std::string many = "a\tstatus\truntimes_ms\n";
  for (int i = 0; i <= 1024; ++i) many += std::to_string(i) + "\tok\t1\n";
  CHECK(files.refusal(many) == "s.tsv, a is 1025; accepted: at most 1024 different values of a parameter");
}

TEST_CASE("recorded space: one row, and rows that are few among many combinations, are searched to their end") {
  Files files;
  const auto one = files.load(kHeader + "1\tx\tok\t2\n");
  REQUIRE(one);
  // 60 rows of 2^40 combinations, each two steps from the next.
  std::string text, row;
  for (int k = 0; k < 40; ++k) text += "k" + std::to_string(k) + "\t";
  text += "status\truntimes_ms\n";
  Rng rng(5);
  for (int r = 0; r < 60; ++r) {
    for (int k = 0; k < 40; ++k) text += rng.below(2) == 0 ? "0\t" : "1\t";
    text += "ok\t" + std::to_string(1 + r) + "\n";
  }
  const auto sparse = files.load(text);
  REQUIRE(sparse);
  CHECK(sparse->space().size() == std::pow(2.0, 40));
  for (const std::string& name : strategy_names()) {
    CAPTURE(name);
    for (const auto* space : {&*one, &*sparse}) {
      auto strategy = make_strategy(name, space->space(), {});
      REQUIRE(strategy);
      std::size_t asked = 0;
      for (std::vector<Point> points = (*strategy)->ask(1); !points.empty(); points = (*strategy)->ask(1)) {
        ++asked;
        CHECK(space->space().violated(points[0]) == nullptr);
        (*strategy)->tell({points[0], space->true_cost(points[0])});
      }
      CHECK(asked == space->rows());
    }
  }
}
