#include "orchestrator/plots/svg.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace amk::plots {
namespace {

constexpr std::array<std::string_view, kColours> kPalette = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F"};

std::string pixels(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", std::isfinite(v) ? v : 0.0);
  return text;
}

std::string list(const Svg::Pixels& points) {
  std::string out;
  for (const auto& [x, y] : points) out += (out.empty() ? "" : " ") + pixels(x) + "," + pixels(y);
  return out;
}

// Length of the well-formed UTF-8 sequence at `at` (RFC 3629), 0 when there is none.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(at);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xC2 && lead <= 0xDF ? 2 : lead >= 0xE0 && lead <= 0xEF ? 3 : lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(at + i) & 0xC0u) != 0x80) return 0;
  const unsigned second = byte(at + 1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F))
    return 0;
  return length;
}

}  // namespace

std::string xml_text(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    const char c = text[i];
    if (length == 0)
      out += "\xEF\xBF\xBD";  // U+FFFD
    else if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (length == 1 && static_cast<unsigned char>(c) < 0x20)
      out += ' ';
    else
      out += text.substr(i, length);
    i += length == 0 ? 1 : length;
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
