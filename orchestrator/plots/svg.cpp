#include "orchestrator/plots/svg.h"

#include <array>
#include <cmath>

#include "core/base/number_text.h"
#include "core/base/text.h"

namespace amk::plots {
namespace {

constexpr std::array<std::string_view, kColours> kPalette = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00",
                                                             "#56B4E9", "#7F7F7F", "#8A2BE2", "#6B8E23"};

std::string pixels(double v) { return with_decimals(std::isfinite(v) ? v : 0.0, 2); }

std::string list(const Svg::Pixels& points) {
  std::string out;
  for (const auto& [x, y] : points) out += (out.empty() ? "" : " ") + pixels(x) + "," + pixels(y);
  return out;
}

}  // namespace

std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : one_line(text)) {  // XML has no place for controls
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

Svg::Svg(double width, double height, std::string_view title) {
  out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + pixels(width) + " " + pixels(height) + "\" width=\"" + pixels(width) +
         "\" height=\"" + pixels(height) + "\" role=\"img\">\n<title>" + xml_text(title) + "</title>\n<style>\n" +
         "text{font:12px system-ui,sans-serif;fill:#222}.title{font-weight:600;font-size:14px}.back{fill:#fff}.grid{stroke:#ddd}.axis{stroke:#555}"
         ".line{fill:none;stroke-width:2}.band{fill-opacity:.18;stroke:none}.dash{stroke-dasharray:6 4}\n";
  for (int i = 0; i < kColours; ++i) {
    const std::string colour(kPalette[static_cast<std::size_t>(i)]);
    out_ += ".s" + std::to_string(i) + "{stroke:" + colour + "}.f" + std::to_string(i) + "{fill:" + colour + "}\n";
  }
  out_ += "@media (prefers-color-scheme:dark){text{fill:#ddd}.back{fill:#181818}.grid{stroke:#333}.axis{stroke:#999}}\n</style>\n";
  rectangle(0, 0, width, height, "class=\"back\"");
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view style) {
  out_ +=
      "<line x1=\"" + pixels(x1) + "\" y1=\"" + pixels(y1) + "\" x2=\"" + pixels(x2) + "\" y2=\"" + pixels(y2) + "\" " + std::string(style) + "/>\n";
}

void Svg::polyline(const Pixels& points, std::string_view style) {
  out_ += "<polyline points=\"" + list(points) + "\" " + std::string(style) + "/>\n";
}

void Svg::polygon(const Pixels& points, std::string_view style) { out_ += "<polygon points=\"" + list(points) + "\" " + std::string(style) + "/>\n"; }

void Svg::rectangle(double x, double y, double width, double height, std::string_view style) {
  out_ += "<rect x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\" width=\"" + pixels(width) + "\" height=\"" + pixels(height) + "\" " +
          std::string(style) + "/>\n";
}

void Svg::text(double x, double y, std::string_view content, Anchor anchor, bool turned, std::string_view style) {
  constexpr std::string_view kAnchors[] = {"start", "middle", "end"};
  out_ += "<text x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\" text-anchor=\"" + std::string(kAnchors[static_cast<int>(anchor)]) + "\"";
  if (turned) out_ += " transform=\"rotate(-90 " + pixels(x) + " " + pixels(y) + ")\"";
  if (!style.empty()) out_ += " " + std::string(style);
  out_ += ">" + xml_text(content) + "</text>\n";
}

std::string Svg::finish() && {
  out_ += "</svg>\n";
  return std::move(out_);
}

}  // namespace amk::plots
