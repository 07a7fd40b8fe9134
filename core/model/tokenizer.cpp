#include "core/model/tokenizer.h"

#include <algorithm>
#include <array>

#include "core/model/tokenizer_tables.h"
#include "core/model/unicode.h"

namespace amk {
namespace {

// GPT-2's bijection of bytes and printable characters: printable Latin-1 stays, the other 68 follow from U+0100 on, in order.
struct ByteAlphabet {
  std::array<char32_t, 256> character{};
  std::array<int, 0x144> byte{};  // by character; -1 where none
  ByteAlphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[b] = printable ? b : next++;
      byte[character[b]] = static_cast<int>(b);
    }
  }
};

const ByteAlphabet& alphabet() {
  static const ByteAlphabet a;
  return a;
}

std::string to_byte_level(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_utf8(alphabet().character[static_cast<unsigned char>(c)], out);
  return out;
}

// The bytes a token stands for; a token with foreign characters (an added one) stands for itself.
std::string from_byte_level(const std::string& token) {
  const auto characters = decode_utf8(token);
  if (!characters) return token;
  std::string out;
  for (const char32_t c : *characters) {
    if (c >= alphabet().byte.size() || alphabet().byte[c] < 0) return token;
    out += static_cast<char>(alphabet().byte[c]);
  }
  return out;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (;;) {
    const auto at = text.find(from);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += to;
    text.remove_prefix(at + from.size());
  }
}

// The byte of a "<0xXX>" token, or -1.
int fallback_byte(const std::string& token) {
  if (token.size() != 6 || token.rfind("<0x", 0) != 0 || token[5] != '>') return -1;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  const int high = digit(token[3]), low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

using Tables = Tokenizer::Tables;

Status encode_byte_level(const Tables& t, std::string text, std::vector<int>& ids) {
  if (t.add_prefix_space && text.front() != ' ') text.insert(0, 1, ' ');
  const auto code_points = decode_utf8(text);  // checked by the caller
  const std::u32string_view all = *code_points;
  const auto encode_piece = [&](std::u32string_view piece) { return t.bpe.encode(to_byte_level(encode_utf8(piece)), ids); };
  std::vector<std::pair<std::size_t, std::size_t>> stretches = {{0, all.size()}};
  if (t.digits_apart) stretches = split_digits(all);
  for (const auto& [first, last] : stretches) {
    const std::u32string_view stretch = all.substr(first, last - first);
    if (!t.pattern) {
      AMK_CHECK(encode_piece(stretch));
      continue;
    }
    for (const auto& [begin, end] : split_text(stretch, *t.pattern)) AMK_CHECK(encode_piece(stretch.substr(begin, end - begin)));
  }
  return {};
}

Status encode_marked(const Tables& t, std::string_view text, bool at_start, std::vector<int>& ids) {
  std::string marked = t.mark_spaces ? replace_all(text, " ", kSpaceMark) : std::string(text);
  const bool wanted = t.prepend == Tables::Prepend::Always || (t.prepend == Tables::Prepend::First && at_start);
  if (wanted && !(t.prepend_unless_there && marked.rfind(kSpaceMark, 0) == 0)) marked.insert(0, kSpaceMark);
  if (!t.split_at_marks) return t.bpe.encode(marked, ids);
  for (std::size_t begin = 0; begin < marked.size();) {
    const std::size_t end = std::min(marked.find(kSpaceMark, begin + 1), marked.size());
    AMK_CHECK(t.bpe.encode(std::string_view(marked).substr(begin, end - begin), ids));
    begin = end;
  }
  return {};
}

Status encode_stretch(const Tables& t, std::string_view text, bool at_start, std::vector<int>& ids) {
  if (text.empty()) return {};
  return t.byte_level ? encode_byte_level(t, std::string(text), ids) : encode_marked(t, text, at_start, ids);
}

// The longest added token at the start of `text`; end() if none.
auto added_at(const Tables& t, std::string_view text) {
  for (std::size_t n = std::min(text.size(), t.longest_added); n > 0; --n)
    if (const auto it = t.added.find(text.substr(0, n)); it != t.added.end()) return it;
  return t.added.end();
}

std::string decode_marked(const Tables& t, const std::vector<std::string>& tokens) {
  std::string out, bytes;
  // A run of byte tokens is text if it is UTF-8, else one replacement character a byte.
  const auto flush = [&] {
    if (decode_utf8(bytes)) {
      out += bytes;
    } else {
      for (std::size_t i = 0; i < bytes.size(); ++i) append_utf8(0xFFFD, out);
    }
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    const int byte = t.join_bytes ? fallback_byte(token) : -1;
    if (byte >= 0) {
      bytes += static_cast<char>(byte);
      continue;
    }
    flush();
    out += t.unmark_spaces ? replace_all(token, kSpaceMark, " ") : token;
  }
  flush();
  if (t.strip_leading_space && !out.empty() && out.front() == ' ') out.erase(0, 1);
  return out;
}

}  // namespace

Result<std::vector<int>> Tokenizer::encode(std::string_view text, bool add_special) const {
  const Tables& t = *tables_;
  const auto code_points = decode_utf8(text);
  if (!code_points) return bad_field("text", std::string(text.substr(0, 100)), "valid UTF-8");
  if (t.require_nfc)
    if (const auto doubtful = first_doubtful_for_nfc(*code_points)) {
      std::string shown;
      append_utf8(*doubtful, shown);
      return fail(ErrorKind::Unsupported,
                  "text holds \"" + shown + "\", which Unicode normalisation (NFC) may change; accepted: text in composed form",
                  {{"field", "text"}, {"value", shown}, {"accepted", "text in NFC"}});
    }
  std::vector<int> ids;
  if (add_special) ids = t.before;
  std::size_t begin = 0;  // of the stretch since the last added token
  for (std::size_t at = 0; at < text.size();) {
    const auto added = added_at(t, text.substr(at));
    if (added == t.added.end()) {
      ++at;
      continue;
    }
    if (added->second.refused != nullptr)
      return fail(ErrorKind::Unsupported,
                  "text holds \"" + added->first + "\", an added token with " + added->second.refused + " true; accepted: text without it",
                  {{"field", "text"}, {"value", added->first}, {"accepted", "text without this token"}});
    AMK_CHECK(encode_stretch(t, text.substr(begin, at - begin), begin == 0, ids));
    ids.push_back(added->second.id);
    at += added->first.size();
    begin = at;
  }
  AMK_CHECK(encode_stretch(t, text.substr(begin), begin == 0, ids));
  if (add_special) ids.insert(ids.end(), t.after.begin(), t.after.end());
  return ids;
}

Result<std::string> Tokenizer::decode(std::span<const int> ids, bool skip_special) const {
  const Tables& t = *tables_;
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const int id = ids[i];
    if (const auto added = t.added_text.find(id); added != t.added_text.end()) {
      if (!(skip_special && t.added.at(added->second).special)) tokens.push_back(added->second);
      continue;
    }
    if (id < 0 || id >= static_cast<int>(t.bpe.token_of.size()) || t.bpe.token_of[static_cast<std::size_t>(id)].empty())
      return bad_field("ids[" + std::to_string(i) + "]", id, "an id of this tokenizer, below " + std::to_string(t.size));
    tokens.push_back(t.bpe.token_of[static_cast<std::size_t>(id)]);
  }
  if (!t.byte_level) return decode_marked(t, tokens);
  std::string bytes;
  for (const std::string& token : tokens) bytes += from_byte_level(token);
  return replace_invalid_utf8(bytes);
}

int Tokenizer::size() const { return tables_->size; }

}  // namespace amk
