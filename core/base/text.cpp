#include "core/base/text.h"

namespace amk {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Of a well-formed sequence.
char32_t code_point(std::string_view sequence) {
  const auto lead = static_cast<unsigned char>(sequence[0]);
  char32_t out = sequence.size() == 1 ? lead : lead & (0xFFu >> (sequence.size() + 1));
  for (const char c : sequence.substr(1)) out = (out << 6) | (static_cast<unsigned char>(c) & 0x3Fu);
  return out;
}

bool is_space(char32_t c) { return c == '\t' || c == '\n' || c == '\v' || c == '\f' || c == '\r' || c == 0x85 || c == 0x2028 || c == 0x2029; }

// Controls, and the marks of bidirectional text.
bool is_hidden(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

std::string shown(std::string_view text, bool lines) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    if (length == 0) {
      out += kReplacement;
      ++i;
      continue;
    }
    const std::string_view sequence = text.substr(i, length);
    const char32_t c = code_point(sequence);
    if (lines && c == '\n')
      out += '\n';
    else if (is_space(c))
      out += ' ';
    else if (is_hidden(c))
      out += kReplacement;
    else
      out += sequence;
    i += length;
  }
  return out;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

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

std::string_view cut_text(std::string_view text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  while (most_bytes > 0 && (static_cast<unsigned char>(text[most_bytes]) & 0xC0) == 0x80) --most_bytes;  // inside a character
  return text.substr(0, most_bytes);
}

std::string one_line(std::string_view text) { return shown(text, false); }
std::string shown_lines(std::string_view text) { return shown(text, true); }

}  // namespace amk
