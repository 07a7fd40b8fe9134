#include "core/base/text.h"

#include <doctest/doctest.h>

using namespace amk;

TEST_CASE("parts between separators, empty ones too") {
  using Parts = std::vector<std::string_view>;
  CHECK(split("a:bc::d", ':') == Parts{"a", "bc", "", "d"});
  CHECK(split("", ':') == Parts{""});
  CHECK(split(":", ':') == Parts{"", ""});
  CHECK(split("no", ':') == Parts{"no"});
}

TEST_CASE("text of strangers is shown as one line that is what it looks like") {
  CHECK(one_line("plain µs → 😀") == "plain µs → 😀");
  CHECK(one_line("a\tb\nc\r\nd\xE2\x80\xA8"
                 "e\xE2\x80\xA9"
                 "f\xC2\x85g") == "a b c  d e f g");
  // ESC, BEL, DEL, NUL, and the C1 form of ESC [: each one replaced.
  CHECK(one_line(std::string("\x1b[2J\x07\x7f\0\xC2\x9B", 9)) == "�[2J����");
  CHECK(one_line("\xE2\x80\xAEgnp.exe\xE2\x81\xA6") == "�gnp.exe�");          // right-to-left override, isolate
  CHECK(one_line("\xE2\x80\x8F\xE2\x80\x8E\xD8\x9C\xE2\x81\xA9") == "����");  // marks, the last isolate
  CHECK(one_line("\xFF"
                 "a\xC0\xAF\xED\xA0\x80") == "�a�����");
  CHECK(shown_lines("a\n\tb\r\n\x1b") == "a\n b \n�");
  CHECK(one_line("") == "");
}

TEST_CASE("text is cut at a character's end") {
  CHECK(cut_text("abc", 3) == "abc");
  CHECK(cut_text("abc", 2) == "ab");
  CHECK(cut_text("aµb", 2) == "a");
  CHECK(cut_text("😀", 3) == "");
  CHECK(utf8_length("😀", 0) == 4);
  CHECK(utf8_length("😀", 1) == 0);
  CHECK(utf8_length("\xF4\x90\x80\x80", 0) == 0);  // beyond U+10FFFF
}
