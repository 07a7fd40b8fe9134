#include "core/model/pretokenize.h"

#include "core/model/unicode.h"

namespace amk {
namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class Scanner {
 public:
  Scanner(std::u32string_view text, SplitPattern pattern) : text_(text), pattern_(pattern) {}

  // End of the piece that starts at `at`: the first alternative that matches, each as greedy as its pattern.
  std::size_t piece_end(std::size_t at) const {
    if (const std::size_t n = contraction(at)) return at + n;
    return pattern_ == SplitPattern::Gpt2 ? gpt2_piece(at) : modern_piece(at);
  }

 private:
  bool other(std::size_t i) const { return i < text_.size() && !is_space(text_[i]) && !is_letter(text_[i]) && !is_number(text_[i]); }
  bool letter(std::size_t i) const { return i < text_.size() && is_letter(text_[i]); }
  bool number(std::size_t i) const { return i < text_.size() && is_number(text_[i]); }
  bool space(std::size_t i) const { return i < text_.size() && is_space(text_[i]); }
  bool newline(std::size_t i) const { return i < text_.size() && (text_[i] == '\r' || text_[i] == '\n'); }

  char32_t lower(std::size_t i) const {
    if (i >= text_.size()) return 0;
    const char32_t c = text_[i];
    if (pattern_ == SplitPattern::Gpt2) return c;
    if (c >= 'A' && c <= 'Z') return c + ('a' - 'A');
    return c == 0x17F ? U's' : c;  // long s folds to s: the only character beyond ASCII that does so for these letters
  }

  std::size_t contraction(std::size_t at) const {
    if (text_[at] != '\'') return 0;
    const char32_t a = lower(at + 1), b = lower(at + 2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
  }

  template <class Member>
  std::size_t run(std::size_t at, Member is, std::size_t most = static_cast<std::size_t>(-1)) const {
    std::size_t end = at;
    while (end < text_.size() && end - at < most && (this->*is)(end)) ++end;
    return end;
  }

  // \s+(?!\S) | \s+: leave the last space to the word it precedes, unless it is all there is.
  std::size_t blank(std::size_t at) const {
    const std::size_t end = run(at, &Scanner::space);
    return end == text_.size() || end - at == 1 ? end : end - 1;
  }

  std::size_t gpt2_piece(std::size_t at) const {
    const std::size_t from = text_[at] == ' ' ? at + 1 : at;
    if (letter(from)) return run(from, &Scanner::letter);
    if (number(from)) return run(from, &Scanner::number);
    if (other(from)) return run(from, &Scanner::other);
    return blank(at);
  }

  std::size_t modern_piece(std::size_t at) const {
    if (letter(at)) return run(at, &Scanner::letter);
    if (!newline(at) && !number(at) && letter(at + 1)) return run(at + 1, &Scanner::letter);
    if (number(at)) return run(at, &Scanner::number, pattern_ == SplitPattern::Llama3 ? 3 : 1);
    const std::size_t from = text_[at] == ' ' ? at + 1 : at;
    if (other(from)) return run(run(from, &Scanner::other), &Scanner::newline);
    // \s*[\r\n]+: up to the last line break of the run of spaces.
    const std::size_t end = run(at, &Scanner::space);
    for (std::size_t i = end; i > at; --i)
      if (newline(i - 1)) return i;
    return blank(at);
  }

  std::u32string_view text_;
  SplitPattern pattern_;
};

}  // namespace

std::optional<SplitPattern> split_pattern(std::string_view regex) {
  if (regex == kLlama3) return SplitPattern::Llama3;
  if (regex == kQwen2) return SplitPattern::Qwen2;
  if (regex == kGpt2) return SplitPattern::Gpt2;
  return std::nullopt;
}

std::vector<std::pair<std::size_t, std::size_t>> split_text(std::u32string_view text, SplitPattern pattern) {
  std::vector<std::pair<std::size_t, std::size_t>> pieces;
  const Scanner scanner(text, pattern);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = scanner.piece_end(at);
    pieces.emplace_back(at, end);
    at = end;
  }
  return pieces;
}

std::vector<std::pair<std::size_t, std::size_t>> split_digits(std::u32string_view text) {
  std::vector<std::pair<std::size_t, std::size_t>> pieces;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    if (!is_number(text[at]))
      while (end < text.size() && !is_number(text[end])) ++end;
    pieces.emplace_back(at, end);
    at = end;
  }
  return pieces;
}

}  // namespace amk
