// Expected ticks and pixel positions were worked out by hand from the layout constants (760 wide, plot from x 76 to 740 and y 40 to 400).
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "core/base/random.h"
#include "orchestrator/plots/axis.h"
#include "orchestrator/plots/charts.h"
#include "orchestrator/plots/svg.h"

using namespace amk;
using namespace amk::plots;

namespace {

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

// Every element is closed and nothing but tags has an angle bracket: enough of XML for what the writer makes.
bool well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (std::size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const std::size_t end = svg.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = svg.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos) return false;
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  return open.empty();
}

}  // namespace

TEST_CASE("ticks are round numbers inside the axis") {
  CHECK(ticks({0, 10, false}, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(ticks({0, 100, false}, 4) == std::vector<double>{0, 50, 100});
  CHECK(ticks({1, 1000, true}, 6) == std::vector<double>{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000});
  const auto decades = ticks({1, 1e8, true}, 8);
  REQUIRE(decades.size() == 9);
  CHECK(std::abs(decades[3] - 1000) < 1e-6);
  Rng rng(3);
  for (int i = 0; i < 500; ++i) {
    const double low = std::pow(10.0, rng.uniform() * 8 - 4);
    const Axis axis{low, low * (1 + std::pow(10.0, rng.uniform() * 5 - 3)), rng.below(2) == 1};
    const auto t = ticks(axis, 6);
    CHECK(t.size() <= 12);
    CHECK(t.size() >= 1);
    for (std::size_t k = 0; k < t.size(); ++k) {
      CHECK(axis.position(t[k]) > -1e-6);
      CHECK(axis.position(t[k]) < 1 + 1e-6);
      if (k > 0) CHECK(t[k] > t[k - 1]);
    }
  }
}

TEST_CASE("an axis holds its values with a margin, and survives having none or one") {
  const Axis linear = axis_for({2, 12, std::numeric_limits<double>::quiet_NaN()}, false);
  CHECK(std::abs(linear.low - 1.6) < 1e-12);
  CHECK(std::abs(linear.high - 12.4) < 1e-12);
  const Axis log = axis_for({10, 1000, 0, -5}, true);
  CHECK(std::abs(log.low - 10 / std::pow(100.0, 0.04)) < 1e-9);
  CHECK(std::abs(log.position(100) - 0.5) < 1e-12);
  CHECK(axis_for({}, false).high == 1);
  CHECK(axis_for({0}, false).low < 0);
  CHECK(axis_for({7, 7}, true).low < 7);
  CHECK(tick_text(0.25) == "0.25");
  CHECK(tick_text(1e-17) == "0");
}

TEST_CASE("text of others cannot leave its element") {
  CHECK(xml_text("a<b>&\"c\n") == "a&lt;b&gt;&amp;&quot;c ");
  CHECK(xml_text("µs \xFF\xC0\xAF!") == "µs \xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD!");
  CHECK(xml_text("\xED\xA0\x80") == "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate is no character
  LineChart chart;
  chart.title = "</svg><script>";
  chart.series.push_back({"<evil>", {1, 2}, {3, 4}, {}, {}, false});
  const std::string svg = line_chart(chart);
  CHECK(svg.find("<script") == std::string::npos);
  CHECK(well_formed(svg));
}

TEST_CASE("a chart puts points where they belong") {
  LineChart chart;
  chart.title = "t";
  chart.series.push_back({"line", {0, 100}, {0, 50}, {0, 40}, {0, 60}, false});
  chart.levels.push_back({"floor", 25});
  const std::string svg = line_chart(chart);
  CHECK(well_formed(svg));
  // x: [-4, 104], y: [-2.4, 62.4]; 0 -> 76 + 664·4/108 = 100.59 and 400 - 360·2.4/64.8 = 386.67; (100, 50) -> 715.41, 108.89.
  CHECK(svg.find("100.59,386.67 715.41,108.89") != std::string::npos);
  CHECK(count(svg, "<polygon") == 1);
  CHECK(svg.find("y1=\"247.78\"") != std::string::npos);  // 400 - 360·27.4/64.8
}

TEST_CASE("a line of one point has a mark, and a name that is too long for its place keeps its end") {
  LineChart chart;
  chart.title = std::string(300, 'x') + "/model on h200: best so far";
  Series s;
  s.x = {1, 1}, s.y = {5, 5}, s.marked = 1;
  chart.series.push_back(s);
  const std::string svg = line_chart(chart);
  // x [0.9, 1.1], y [4.5, 5.5]: the point is in the middle, 408 and 220; a mark of six pixels around it.
  CHECK(svg.find("<rect x=\"405.00\" y=\"217.00\" width=\"6.00\" height=\"6.00\" class=\"f0\"/>") != std::string::npos);
  CHECK(svg.find("class=\"title\">…" + std::string(84 - 28, 'x') + "/model on h200: best so far<") != std::string::npos);
  const std::string bars = bar_chart("knobs", "share", {{"kernel_knobs.a_knob_with_a_name_that_is_long_é", 1, ""}});
  CHECK(bars.find(">…nob_with_a_name_that_is_long_é<") == std::string::npos);
  CHECK(bars.find(">…") != std::string::npos);
  CHECK(bars.find("_that_is_long_é<") != std::string::npos);
  // As many strategies as there are, and a level: each its colour.
  LineChart all;
  for (int i = 0; i < 8; ++i) all.series.push_back({"s" + std::to_string(i), {1, 2}, {1.0 + i, 2.0 + i}, {}, {}, false});
  all.levels.push_back({"level", 3});
  const std::string colours = line_chart(all);
  CHECK(colours.find("class=\"line s7\"") != std::string::npos);
  CHECK(colours.find("class=\"line dash s8\"") != std::string::npos);
}

TEST_CASE("steps hold their value; gaps break a line") {
  LineChart steps;
  steps.series.push_back({"best", {0, 50, 100}, {30, 20, 0}, {}, {}, true});
  CHECK(count(line_chart(steps), "<polyline") == 1);
  LineChart gap = steps;
  gap.series[0].y[1] = std::numeric_limits<double>::infinity();
  const std::string svg = line_chart(gap);
  CHECK(count(svg, "<polyline") == 2);
  CHECK(svg.find("inf") == std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(well_formed(line_chart({})));
}

TEST_CASE("bars are proportional to their values") {
  // The widest bar has 760 - 230 - 120 = 410 pixels.
  const std::string svg = bar_chart("knobs", "share", {{"a", 0.5, ""}, {"b", 0.25, "few"}, {"c", 0, ""}});
  CHECK(well_formed(svg));
  CHECK(svg.find("width=\"410.00\"") != std::string::npos);
  CHECK(svg.find("width=\"205.00\"") != std::string::npos);
  CHECK(svg.find(">few<") != std::string::npos);
  CHECK(well_formed(bar_chart("none", "", {})));
}
