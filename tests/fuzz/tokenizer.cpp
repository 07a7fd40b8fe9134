// tokenizer.json, then (after a NUL) a text: what is encoded decodes, to UTF-8, whatever the tables say.
#include "core/model/tokenizer.h"
#include "core/base/parse_json.h"
#include "tests/fuzz/fuzz.h"

using namespace amk;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto [tables, text] = fuzz::split(fuzz::text_of(data, size));
  const auto json = parse_json(tables, "tokenizer.json");
  if (!json) return 0;
  const auto tokenizer = Tokenizer::from_json(*json);
  if (!tokenizer) {
    require(!tokenizer.error().message.empty(), "a refusal says why");
    return 0;
  }
  for (const bool special : {false, true}) {
    const auto ids = tokenizer->encode(text, special);
    if (!ids) continue;
    for (const int id : *ids) require(id >= 0 && id < tokenizer->size(), "ids lie within the vocabulary");
    const auto back = tokenizer->decode(*ids, !special);
    require(back.has_value(), "what was encoded decodes");
    require(parse_json(Json(*back).dump(), "text").has_value(), "decoded text is UTF-8");  // dump is strict: throws otherwise
  }
  std::vector<int> all;
  for (std::size_t i = 0; i < text.size() && i < 64; ++i) all.push_back(static_cast<unsigned char>(text[i]) * 3 - 5);
  (void)tokenizer->decode(all);
  return 0;
}
