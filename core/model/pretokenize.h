// Cutting text into the pieces within which BPE merges: the regular expressions of the GPT-2, Llama-3 and Qwen tokenizers, as code.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace amk {

enum class SplitPattern {
  Gpt2,    // '(s|t|re|ve|m|ll|d) | ?\p{L}+ | ?\p{N}+ | ?[^\s\p{L}\p{N}]+ | \s+(?!\S) | \s+
  Llama3,  // contractions in either case; a letter run may take one other character before it; numbers of up to three digits
  Qwen2,   // as Llama3, digits one by one
};

// The pattern whose text this is, as tokenizer.json writes it. Empty for any other.
std::optional<SplitPattern> split_pattern(std::string_view regex);

// Piece boundaries [begin, end) in code points; they cover the text. Linear time.
std::vector<std::pair<std::size_t, std::size_t>> split_text(std::u32string_view text, SplitPattern pattern);

// Every number character a piece of its own, everything between them as it is.
std::vector<std::pair<std::size_t, std::size_t>> split_digits(std::u32string_view text);

}  // namespace amk
