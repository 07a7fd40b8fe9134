// The little of Unicode that tokenizers need. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace amk {

struct CodeRange {
  char32_t first, last;
};
struct CombiningRange {
  char32_t first, last;
  std::uint8_t combining_class;
};

// unicode_tables.cpp; each sorted by code point.
std::span<const CodeRange> letter_ranges();             // general category L*
std::span<const CodeRange> number_ranges();             // general category N*
std::span<const CodeRange> may_change_in_nfc_ranges();  // NFC quick check "No" or "Maybe"
std::span<const CombiningRange> combining_ranges();     // canonical combining class other than 0

bool is_letter(char32_t c);
bool is_number(char32_t c);
bool is_space(char32_t c);  // property White_Space

// Strict: empty for overlong forms, surrogates, values above U+10FFFF, truncated sequences.
std::optional<std::u32string> decode_utf8(std::string_view text);
void append_utf8(char32_t c, std::string& out);
std::string encode_utf8(std::u32string_view text);
// Bytes that are not UTF-8 become U+FFFD, one for each maximal part of a sequence (Unicode 15, 3.9, "substitution of maximal subparts").
std::string replace_invalid_utf8(std::string_view bytes);

// The first character because of which `text` might not be in Normalization Form C (UAX #15, quick check); empty if it surely is.
std::optional<char32_t> first_doubtful_for_nfc(std::u32string_view text);

}  // namespace amk
