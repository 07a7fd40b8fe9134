// A small writer of SVG 1.1 documents: shapes and escaped text. Coordinates in pixels, two decimals. Not thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace amk::plots {

// Text as XML character data: markup escaped, control characters and bytes that are not UTF-8 replaced.
std::string xml_text(std::string_view text);

class Svg {
 public:
  using Pixels = std::vector<std::pair<double, double>>;

  Svg(double width, double height, std::string_view title);
  // `style` is one of our own class names or attributes, never text of others.
  void line(double x1, double y1, double x2, double y2, std::string_view style);
  void polyline(const Pixels& points, std::string_view style);
  void polygon(const Pixels& points, std::string_view style);
  void rectangle(double x, double y, double width, double height, std::string_view style);
  enum class Anchor { Start, Middle, End };
  void text(double x, double y, std::string_view content, Anchor anchor = Anchor::Start, bool turned = false, std::string_view style = "");
  std::string finish() &&;

 private:
  std::string out_;
};

// Colours that people with colour blindness tell apart (Okabe & Ito 2008; the last two are no part of theirs), as CSS classes "s0"…"s8" (strokes) and
// "f0"…"f8" (fills). As many as there are strategies, and a level.
inline constexpr int kColours = 9;

}  // namespace amk::plots
