// Text to token ids and back, from a checkpoint's tokenizer.json (HuggingFace tokenizers, version "1.0").
// Supported: BPE models as the llama, mistral, qwen and smollm families ship them: byte-level (GPT-2, Llama-3 or Qwen splitting, digits
// apart, NFC checked) and SentencePiece-style (Metaspace or Prepend/Replace, byte fallback). Everything else is refused by name.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace amk {

// Immutable; thread-safe. Copies share their tables.
class Tokenizer {
 public:
  // Errors: NotFound (no such file), InvalidArgument (not JSON, wrong types), Unsupported (names the part and its value).
  static Result<Tokenizer> load(const std::filesystem::path& tokenizer_json);
  static Result<Tokenizer> from_json(const Json& json);

  // Special tokens written out in the text ("<|eot_id|>") are recognised. `add_special`: also those the post-processor puts around every
  // text (a leading BOS). Errors: text that is not UTF-8, or not surely in NFC where the tokenizer would normalise it.
  Result<std::vector<int>> encode(std::string_view text, bool add_special = true) const;

  // Valid UTF-8 always: what is not becomes U+FFFD. Errors: an id without a token.
  Result<std::string> decode(std::span<const int> ids, bool skip_special = true) const;

  int size() const;  // one more than the largest id

  struct Tables;

 private:
  explicit Tokenizer(std::shared_ptr<const Tables> tables) : tables_(std::move(tables)) {}
  std::shared_ptr<const Tables> tables_;
};

}  // namespace amk
