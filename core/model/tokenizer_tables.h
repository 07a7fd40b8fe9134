// A tokenizer.json, understood. Internal to core/model.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/model/bpe.h"
#include "core/model/pretokenize.h"
#include "core/model/tokenizer.h"

namespace amk {

struct AddedToken {
  int id = 0;
  bool special = false;
  const char* refused = nullptr;  // a matching rule that is not supported: an error only if a text holds this token
};

struct Tokenizer::Tables {
  BpeModel bpe;
  std::map<std::string, AddedToken, std::less<>> added;  // by text
  std::unordered_map<int, std::string> added_text;       // by id
  std::size_t longest_added = 0;                         // bytes
  int size = 0;

  bool require_nfc = false;

  // Encoding, byte-level: bytes become printable characters before BPE.
  bool byte_level = false;
  bool digits_apart = false;  // before the split pattern
  std::optional<SplitPattern> pattern;
  bool add_prefix_space = false;
  // Encoding, otherwise: spaces become marks (U+2581).
  bool mark_spaces = false;
  enum class Prepend { Never, First, Always } prepend = Prepend::Never;  // of a mark, to which stretches between added tokens
  bool prepend_unless_there = false;  // Metaspace does not prepend to text that starts with a mark; the Prepend normalizer does
  bool split_at_marks = false;        // every mark starts a piece

  // Decoding, when not byte-level.
  bool unmark_spaces = false;
  bool join_bytes = false;           // "<0xXX>" tokens are bytes
  bool strip_leading_space = false;  // takes back the prepended mark

  std::vector<int> before, after;  // ids around every text
};

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

}  // namespace amk
