#include "core/model/unicode.h"

#include <algorithm>

namespace amk {
namespace {

template <class Range>
const Range* find_range(std::span<const Range> ranges, char32_t c) {
  const auto it = std::upper_bound(ranges.begin(), ranges.end(), c, [](char32_t v, const Range& r) { return v < r.first; });
  if (it == ranges.begin() || (it - 1)->last < c) return nullptr;
  return &*(it - 1);
}

struct Step {
  char32_t value = 0;
  int length = 0;  // bytes consumed
  bool valid = false;
};

// One code point at the start of `s` (not empty). If invalid, length is the maximal subpart's.
Step next_code_point(std::string_view s) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  if (lead < 0xC2 || lead > 0xF4) return {0, 1, false};  // continuation, overlong, or beyond U+10FFFF
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t value = lead & (0x7Fu >> length);
  for (int i = 1; i < length; ++i) {
    if (static_cast<std::size_t>(i) >= s.size()) return {0, i, false};
    const unsigned b = byte(static_cast<std::size_t>(i));
    unsigned low = 0x80, high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;   // shorter forms exist
      if (lead == 0xED) high = 0x9F;  // surrogates
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (b < low || b > high) return {0, i, false};
    value = (value << 6) | (b & 0x3F);
  }
  return {value, length, true};
}

}  // namespace

bool is_letter(char32_t c) { return find_range(letter_ranges(), c) != nullptr; }
bool is_number(char32_t c) { return find_range(number_ranges(), c) != nullptr; }

bool is_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

std::optional<std::u32string> decode_utf8(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Step step = next_code_point(text);
    if (!step.valid) return std::nullopt;
    out += step.value;
    text.remove_prefix(static_cast<std::size_t>(step.length));
  }
  return out;
}

void append_utf8(char32_t c, std::string& out) {
  const auto put = [&](char32_t v) { out += static_cast<char>(v); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6)), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12)), put(0x80 | ((c >> 6) & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18)), put(0x80 | ((c >> 12) & 0x3F)), put(0x80 | ((c >> 6) & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

std::string encode_utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) append_utf8(c, out);
  return out;
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const Step step = next_code_point(bytes);
    append_utf8(step.valid ? step.value : 0xFFFD, out);
    bytes.remove_prefix(static_cast<std::size_t>(step.length));
  }
  return out;
}

std::optional<char32_t> first_doubtful_for_nfc(std::u32string_view text) {
  std::uint8_t last_class = 0;
  for (const char32_t c : text) {
    if (c < 0x300) {  // Latin-1 and its neighbours: composed, combining class 0
      last_class = 0;
      continue;
    }
    const CombiningRange* combining = find_range(combining_ranges(), c);
    const std::uint8_t current = combining == nullptr ? 0 : combining->combining_class;
    if ((current != 0 && last_class > current) || find_range(may_change_in_nfc_ranges(), c) != nullptr) return c;
    last_class = current;
  }
  return std::nullopt;
}

}  // namespace amk
