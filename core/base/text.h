// Text: its parts; and of strangers' text, what may be shown. Pure, thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace amk {

// What stands between separators, empty or not: one part more than there are of them. Views of `text`.
std::vector<std::string_view> split(std::string_view text, char separator);

// Length of the well-formed UTF-8 sequence at `at` (RFC 3629), 0 when there is none.
std::size_t utf8_length(std::string_view text, std::size_t at);

// At most so many bytes, cut at a character's end: UTF-8 stays UTF-8.
std::string_view cut_text(std::string_view text, std::size_t most_bytes);

// On one line of a terminal or a page, and nothing else than it looks like: line and paragraph ends, tabs and the like become spaces; other control
// characters (among them ESC, with which a terminal is told what to do), marks that turn the direction of what follows (Boucher, Anderson 2021) and
// what is no UTF-8 become U+FFFD.
std::string one_line(std::string_view text);

// The same of text that has lines: line feeds stay.
std::string shown_lines(std::string_view text);

}  // namespace amk
