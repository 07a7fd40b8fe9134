// Byte-pair encoding of one piece of text with ranked merges (Sennrich et al. 2016), as the "BPE" model of HuggingFace tokenizers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace amk {

// Immutable once filled; thread-safe.
struct BpeModel {
  std::unordered_map<std::string, int> vocab;
  std::vector<std::string> token_of;  // by id; empty where an id has no entry in the vocabulary
  struct Merge {
    int rank;
    int merged;  // id of the result
  };
  std::unordered_map<std::uint64_t, Merge> merges;  // key: left id << 32 | right id
  bool byte_fallback = false;                       // characters outside the vocabulary become <0xXX> tokens
  bool ignore_merges = false;                       // a piece that is a token is that token, whatever the merges say
  bool fuse_unknown = false;                        // neighbouring unknown characters become one unknown token
  std::optional<int> unknown;

  static std::uint64_t key(int left, int right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  // Appends the ids of `piece` (UTF-8). O(n log n). InvalidArgument if a character has no token and there is no unknown token.
  Status encode(std::string_view piece, std::vector<int>& ids) const;
};

}  // namespace amk
