#include "orchestrator/plots/charts.h"

#include <algorithm>
#include <cmath>

#include "core/base/text.h"
#include "orchestrator/plots/axis.h"
#include "orchestrator/plots/svg.h"

namespace amk::plots {
namespace {

constexpr double kWidth = 760, kPlotHeight = 360, kLeft = 76, kRight = 20, kTop = 40, kBottom = 52;
constexpr double kLegendRow = 18, kBarRow = 24, kMark = 6;
constexpr std::size_t kTitleCharacters = 84;

std::string indexed(const char* before, std::size_t i, const char* after) { return before + std::to_string(i % kColours) + after; }

// The end of a name that is too long for its place tells more than its beginning (paths, dotted knobs). Characters of 12 pixels take 6.5 on average.
std::string fitting(const std::string& text, std::size_t characters) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < text.size(); i += std::max<std::size_t>(1, utf8_length(text, i))) starts.push_back(i);
  return starts.size() <= characters ? text : "…" + text.substr(starts[starts.size() - characters + 1]);
}

struct Frame {
  Axis x, y;
  double pixel_x(double v) const { return kLeft + x.position(v) * (kWidth - kLeft - kRight); }
  double pixel_y(double v) const { return kTop + (1 - y.position(v)) * kPlotHeight; }
  bool holds(double vx, double vy) const {
    return std::isfinite(vx) && std::isfinite(vy) && (!x.logarithmic || vx > 0) && (!y.logarithmic || vy > 0);
  }
};

void draw_axes(Svg& svg, const Frame& f, const LineChart& chart) {
  for (const double t : ticks(f.x, 8)) {
    svg.line(f.pixel_x(t), kTop, f.pixel_x(t), kTop + kPlotHeight, "class=\"grid\"");
    svg.text(f.pixel_x(t), kTop + kPlotHeight + 18, tick_text(t), Svg::Anchor::Middle);
  }
  for (const double t : ticks(f.y)) {
    svg.line(kLeft, f.pixel_y(t), kWidth - kRight, f.pixel_y(t), "class=\"grid\"");
    svg.text(kLeft - 8, f.pixel_y(t) + 4, tick_text(t), Svg::Anchor::End);
  }
  svg.line(kLeft, kTop + kPlotHeight, kWidth - kRight, kTop + kPlotHeight, "class=\"axis\"");
  svg.line(kLeft, kTop, kLeft, kTop + kPlotHeight, "class=\"axis\"");
  svg.text((kLeft + kWidth - kRight) / 2, kTop + kPlotHeight + 40, chart.x_label, Svg::Anchor::Middle);
  svg.text(18, kTop + kPlotHeight / 2, chart.y_label, Svg::Anchor::Middle, true);
  svg.text(kLeft, 24, fitting(chart.title, kTitleCharacters), Svg::Anchor::Start, false, "class=\"title\"");
}

// Runs of drawable points, as pixels.
std::vector<Svg::Pixels> runs(const Frame& f, const Series& s, const std::vector<double>& y) {
  std::vector<Svg::Pixels> out(1);
  for (std::size_t i = 0; i < std::min(s.x.size(), y.size()); ++i) {
    if (!f.holds(s.x[i], y[i])) {
      if (!out.back().empty()) out.emplace_back();
      continue;
    }
    Svg::Pixels& run = out.back();
    const std::pair at{f.pixel_x(s.x[i]), f.pixel_y(y[i])};
    if (s.steps && !run.empty()) run.emplace_back(at.first, run.back().second);
    run.push_back(at);
  }
  if (out.back().empty()) out.pop_back();
  return out;
}

}  // namespace

std::string line_chart(const LineChart& chart) {
  std::vector<double> xs, ys;
  for (const Series& s : chart.series) {
    xs.insert(xs.end(), s.x.begin(), s.x.end());
    for (const auto* values : {&s.y, &s.low, &s.high}) ys.insert(ys.end(), values->begin(), values->end());
  }
  for (const Level& level : chart.levels) ys.push_back(level.y);
  const Frame f{axis_for(xs, chart.logarithmic_x), axis_for(ys, chart.logarithmic_y)};
  const double height = kTop + kPlotHeight + kBottom + kLegendRow * static_cast<double>(chart.series.size() + chart.levels.size());
  Svg svg(kWidth, height, chart.title);
  draw_axes(svg, f, chart);
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& s = chart.series[i];
    const auto low = runs(f, s, s.low), high = runs(f, s, s.high);
    // A band is drawn where both of its edges are whole; a broken one would join what is not there.
    if (low.size() == 1 && high.size() == 1 && low[0].size() == high[0].size()) {
      Svg::Pixels outline = low[0];
      outline.insert(outline.end(), high[0].rbegin(), high[0].rend());
      svg.polygon(outline, indexed("class=\"band f", i, "\""));
    }
  }
  double legend = kTop + kPlotHeight + kBottom + 8;
  const auto name = [&](const std::string& text, const std::string& style) {
    svg.line(kLeft, legend - 4, kLeft + 26, legend - 4, style);
    svg.text(kLeft + 34, legend, text);
    legend += kLegendRow;
  };
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const std::string style = indexed("class=\"line s", i, "\"");
    const Series& s = chart.series[i];
    for (const Svg::Pixels& run : runs(f, s, s.y)) svg.polyline(run, style);
    for (std::size_t k = 0; k < std::min({s.marked, s.x.size(), s.y.size()}); ++k)
      if (f.holds(s.x[k], s.y[k]))
        svg.rectangle(f.pixel_x(s.x[k]) - kMark / 2, f.pixel_y(s.y[k]) - kMark / 2, kMark, kMark, indexed("class=\"f", i, "\""));
    name(s.name, style);
  }
  for (std::size_t i = 0; i < chart.levels.size(); ++i) {
    const Level& level = chart.levels[i];
    if (!f.holds(f.x.low, level.y)) continue;
    const std::string style = indexed("class=\"line dash s", chart.series.size() + i, "\"");
    svg.line(kLeft, f.pixel_y(level.y), kWidth - kRight, f.pixel_y(level.y), style);
    name(level.name, style);
  }
  return std::move(svg).finish();
}

std::string bar_chart(const std::string& title, const std::string& unit, const std::vector<Bar>& bars) {
  constexpr double kLabels = 230, kNotes = 120;
  constexpr std::size_t kLabelCharacters = 34;
  double most = 0;
  for (const Bar& b : bars)
    if (std::isfinite(b.value)) most = std::max(most, b.value);
  Svg svg(kWidth, kTop + kBarRow * static_cast<double>(std::max<std::size_t>(bars.size(), 1)) + 16, title);
  svg.text(16, 24, title + (unit.empty() ? "" : " (" + unit + ")"), Svg::Anchor::Start, false, "class=\"title\"");
  double y = kTop;
  for (const Bar& b : bars) {
    const double width = most > 0 && std::isfinite(b.value) ? std::max(0.0, b.value) / most * (kWidth - kLabels - kNotes) : 0;
    svg.text(kLabels - 8, y + 15, fitting(b.label, kLabelCharacters), Svg::Anchor::End);
    svg.rectangle(kLabels, y + 3, width, kBarRow - 6, "class=\"f0\"");
    svg.text(kLabels + width + 8, y + 15, b.note.empty() ? tick_text(b.value) : b.note);
    y += kBarRow;
  }
  if (bars.empty()) svg.text(16, y + 15, "nothing yet");
  return std::move(svg).finish();
}

}  // namespace amk::plots
