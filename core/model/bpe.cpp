#include "core/model/bpe.h"

#include <array>
#include <queue>

#include "core/model/unicode.h"

namespace amk {
namespace {

std::string byte_token(unsigned char byte) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
}

// A doubly linked list of symbols in an array: a merge extends the left one and drops the right one.
struct Symbol {
  int id;
  int previous;
  int next;  // -1 at the ends
};

struct Candidate {
  int rank;
  int position;     // of the left symbol
  int left, right;  // ids when it was queued: it is stale if they have changed
  bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : position > other.position; }  // queue order reversed
};

}  // namespace

Status BpeModel::encode(std::string_view piece, std::vector<int>& ids) const {
  if (piece.empty()) return {};
  if (ignore_merges)
    if (const auto whole = vocab.find(std::string(piece)); whole != vocab.end()) {
      ids.push_back(whole->second);
      return {};
    }

  std::vector<Symbol> symbols;
  const auto push = [&](int id) {
    const int at = static_cast<int>(symbols.size());
    symbols.push_back({id, at - 1, at + 1});
  };
  bool after_unknown = false;
  for (std::size_t at = 0; at < piece.size();) {
    std::size_t length = 1;
    while (at + length < piece.size() && (static_cast<unsigned char>(piece[at + length]) & 0xC0) == 0x80) ++length;
    const std::string character(piece.substr(at, length));
    at += length;
    if (const auto found = vocab.find(character); found != vocab.end()) {
      push(found->second);
      after_unknown = false;
      continue;
    }
    if (byte_fallback) {
      std::array<int, 4> bytes{};
      std::size_t known = 0;
      for (; known < character.size(); ++known) {
        const auto found = vocab.find(byte_token(static_cast<unsigned char>(character[known])));
        if (found == vocab.end()) break;
        bytes[known] = found->second;
      }
      if (known == character.size()) {
        for (std::size_t i = 0; i < known; ++i) push(bytes[i]);
        after_unknown = false;
        continue;
      }
    }
    if (!unknown) return bad_field("text", character, "characters of this tokenizer's vocabulary (it has no unknown token)");
    if (!(fuse_unknown && after_unknown)) push(*unknown);
    after_unknown = true;
  }
  symbols.back().next = -1;

  std::priority_queue<Candidate> queue;
  const auto consider = [&](int left) {
    const int right = left < 0 ? -1 : symbols[static_cast<std::size_t>(left)].next;
    if (right < 0) return;
    const int l = symbols[static_cast<std::size_t>(left)].id;
    const int r = symbols[static_cast<std::size_t>(right)].id;
    if (const auto merge = merges.find(key(l, r)); merge != merges.end()) queue.push({merge->second.rank, left, l, r});
  };
  for (int i = 0; i + 1 < static_cast<int>(symbols.size()); ++i) consider(i);
  constexpr int kDropped = -1;
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[static_cast<std::size_t>(best.position)];
    if (left.id != best.left || left.next < 0 || symbols[static_cast<std::size_t>(left.next)].id != best.right) continue;
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    left.id = merges.at(key(best.left, best.right)).merged;
    left.next = right.next;
    right.id = kDropped;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = best.position;
    consider(left.previous);
    consider(best.position);
  }
  for (int i = 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) ids.push_back(symbols[static_cast<std::size_t>(i)].id);
  return {};
}

}  // namespace amk
