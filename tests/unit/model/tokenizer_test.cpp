// Tokenizers against ids and texts recorded from HuggingFace tokenizers 0.22.2 (tests/fixtures/tokenizer: small vocabularies in the forms
// of the Llama-3, Qwen2, SmolLM2, GPT-2, Llama-2 and Mistral files), and refusals of what is not supported.
#include <doctest/doctest.h>

#include <cstdlib>

#include "core/base/parse_json.h"
#include "core/base/random.h"
#include "core/model/shards.h"
#include "core/model/tokenizer.h"
#include "core/model/unicode.h"

using namespace amk;
namespace fs = std::filesystem;

namespace {

fs::path fixtures() {
  const char* other = std::getenv("AMK_TOKENIZER_CASES");  // a larger recording
  return other != nullptr ? fs::path(other) : fs::path(AMK_SOURCE_DIR) / "tests/fixtures/tokenizer";
}

Json record(const std::string& name) {
  auto json = parse_json(*read_text_file(fixtures() / (name + ".json"), 64 << 20), name, {.max_bytes = 64 << 20});
  REQUIRE_MESSAGE(json, (json ? "" : json.error().message));
  return *json;
}

const char* const kNames[] = {"llama3", "qwen2", "smollm", "gpt2", "llama2", "mistral", "metaspace-unk"};

}  // namespace

TEST_CASE("ids and decoded texts equal those of HuggingFace tokenizers") {
  for (const std::string name : kNames) {
    CAPTURE(name);
    const Json r = record(name);
    const auto tokenizer = Tokenizer::from_json(r["tokenizer"]);
    REQUIRE_MESSAGE(tokenizer, (tokenizer ? "" : tokenizer.error().message));
    int refused = 0;
    for (const Json& c : r["cases"]) {
      const auto text = c["text"].get<std::string>();
      CAPTURE(text);
      const auto ids = tokenizer->encode(text);
      if (c["ids"].is_null()) {  // not in NFC: the original would change it
        REQUIRE_FALSE(ids);
        CHECK(ids.error().kind == ErrorKind::Unsupported);
        ++refused;
        continue;
      }
      REQUIRE_MESSAGE(ids, (ids ? "" : ids.error().message));
      CHECK(*ids == c["ids"].get<std::vector<int>>());
      CHECK(*tokenizer->encode(text, false) == c["plain_ids"].get<std::vector<int>>());
      CHECK(*tokenizer->decode(*ids) == c["decoded"].get<std::string>());
      CHECK(*tokenizer->decode(*ids, false) == c["decoded_special"].get<std::string>());
    }
    CHECK((refused > 0) == (name == "qwen2"));
  }
}

TEST_CASE("byte-level tokenizers give back any text") {
  for (const std::string name : {"llama3", "smollm"}) {
    const auto tokenizer = Tokenizer::from_json(record(name)["tokenizer"]);
    REQUIRE(tokenizer);
    Rng rng(5);
    for (int i = 0; i < 300; ++i) {
      std::string text;
      for (std::uint64_t n = rng.below(30); n > 0; --n) {
        const std::uint64_t kind = rng.below(4);
        char32_t c = static_cast<char32_t>(kind == 0   ? rng.below(0x80)
                                           : kind == 1 ? rng.below(0x800)
                                           : kind == 2 ? rng.below(0x10000)
                                                       : rng.below(0x110000));
        if (c >= 0xD800 && c < 0xE000) c = ' ';
        append_utf8(c, text);
      }
      const auto ids = tokenizer->encode(text);
      REQUIRE(ids);
      CHECK(*tokenizer->decode(*ids) == text);
    }
  }
}

TEST_CASE("ids without a token and text that is not UTF-8 are errors; broken bytes decode to replacement characters") {
  const auto tokenizer = Tokenizer::from_json(record("llama3")["tokenizer"]);
  REQUIRE(tokenizer);
  for (const int id : {-1, tokenizer->size(), INT32_MAX}) {
    const std::vector<int> ids = {0, id};
    const auto text = tokenizer->decode(ids);
    REQUIRE_FALSE(text);
    CHECK(text.error().data["field"] == "ids[1]");
  }
  for (const char* text : {"\xff", "a\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"})
    CHECK(tokenizer->encode(text).error().data["field"] == "text");
  const auto euro = tokenizer->encode("€", false);  // three bytes, no merges in this vocabulary
  REQUIRE(euro);
  REQUIRE(euro->size() == 3);
  CHECK(*tokenizer->decode(std::vector<int>{(*euro)[0], (*euro)[1]}) == "\uFFFD");
  CHECK(*tokenizer->decode(std::vector<int>{(*euro)[1], (*euro)[2]}) == "\uFFFD\uFFFD");
}

TEST_CASE("long input stays near linear: one word of 200,000 characters") {
  const auto tokenizer = Tokenizer::from_json(record("llama2")["tokenizer"]);
  REQUIRE(tokenizer);
  std::string text;
  for (int i = 0; i < 50000; ++i) text += "the ";
  const auto ids = tokenizer->encode(text);
  REQUIRE(ids);
  CHECK(tokenizer->decode(*ids) == text);
}

TEST_CASE("parts that are not supported are refused by name") {
  const Json good = record("llama3")["tokenizer"];
  const auto refused = [&](const Json& patch, const std::string& field, const Json& base) {
    CAPTURE(field);
    Json json = base;
    json.merge_patch(patch);
    const auto tokenizer = Tokenizer::from_json(json);
    REQUIRE_FALSE(tokenizer);
    CHECK(tokenizer.error().data["field"] == field);
  };
  const auto off = [&](const Json& patch, const std::string& field) { refused(patch, field, good); };
  off({{"model", {{"type", "Unigram"}}}}, "model.type");
  off({{"model", {{"dropout", 0.1}}}}, "model.dropout");
  off({{"model", {{"end_of_word_suffix", "</w>"}}}}, "model.end_of_word_suffix");
  off({{"model", {{"vocab", {{"a", -1}}}}}}, "model.vocab[\"a\"]");
  off({{"model", {{"vocab", {{"a", 70000}, {"b", 70000}}}}}}, "model.vocab[\"b\"]");
  off({{"model", {{"merges", Json::array({Json::array({"a", "zz9"})})}}}}, "model.merges[0]");
  off({{"model", {{"merges", Json::array({"a b c"})}}}}, "model.merges[0]");
  off({{"model", {{"unk_token", "none such"}}}}, "model.unk_token");
  off({{"model", 3}}, "model");
  off({{"normalizer", {{"type", "Lowercase"}}}}, "normalizer");
  off({{"normalizer", {{"type", "Prepend"}, {"prepend", "\u2581"}}}}, "normalizer");
  off({{"pre_tokenizer", {{"type", "BertPreTokenizer"}}}}, "pre_tokenizer");
  off({{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}}}}}}}, "pre_tokenizer");
  off({{"pre_tokenizer",
        {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}}, {{"type", "ByteLevel"}}}}}}},
      "pre_tokenizer.pattern");
  off({{"decoder", {{"type", "WordPiece"}}}}, "decoder");
  off({{"decoder", nullptr}}, "decoder");
  off({{"post_processor", {{"type", "BertProcessing"}, {"processors", nullptr}}}}, "post_processor");
  off({{"truncation", {{"max_length", 5}}}}, "truncation");
  off({{"added_tokens", {{{"id", 1}}}}}, "added_tokens[0].content");
  off({{"added_tokens", {{{"id", 90000}, {"content", "xyzzy"}}, {{"id", 90001}, {"content", "xyzzy"}}}}}, "added_tokens[1].content");
  off({{"added_tokens", {{{"id", 1}, {"content", "xyzzy"}}}}}, "added_tokens[0].id");
  off({{"added_tokens", {{{"id", 90000}, {"content", "whole"}}}}}, "added_tokens[0].id");
  off({{"added_tokens", nullptr}}, "post_processor.special_tokens");
  refused({{"pre_tokenizer", {{"prepend_scheme", "sometimes"}}}}, "pre_tokenizer.prepend_scheme", record("mistral")["tokenizer"]);
  for (const char* text : {"[]", "{}", "3"}) CHECK_FALSE(Tokenizer::from_json(*parse_json(text, "t")));
  CHECK(Tokenizer::load("/nonexistent/tokenizer.json").error().kind == ErrorKind::NotFound);

  Json strips = good;
  strips["added_tokens"][1]["lstrip"] = true;
  const auto tokenizer = Tokenizer::from_json(strips);
  REQUIRE(tokenizer);
  CHECK(tokenizer->encode("fine"));
  CHECK(tokenizer->encode("x <|eot_id|>").error().kind == ErrorKind::Unsupported);  // only texts that hold it depend on the rule
}

TEST_CASE("Unicode classes of well-known characters (UnicodeData.txt)") {
  for (const char32_t c : {U'a', U'Z', U'é', U'ß', U'漢', U'д', U'ª', U'ʰ', U'𝒳'}) CHECK(is_letter(c));
  for (const char32_t c : {U'1', U'½', U'²', U'Ⅻ', U'٣', U'⅕'}) CHECK(is_number(c));
  for (const char32_t c : {U' ', U'\n', U'\u0085', U'\u00A0', U'\u2028', U'\u3000'}) CHECK(is_space(c));
  for (const char32_t c : {U'_', U'-', U'\u0301', U'😀', U'\u200B', U'\uFEFF', U'€'}) CHECK_FALSE((is_letter(c) || is_number(c) || is_space(c)));
  CHECK_FALSE(first_doubtful_for_nfc(U"é हिन्दी ไทย עברית"));
  CHECK(first_doubtful_for_nfc(U"e\u0301") == U'\u0301');
  CHECK(first_doubtful_for_nfc(U"\u212B") == U'\u212B');              // Angstrom sign: normalises to Å
  CHECK(first_doubtful_for_nfc(U"a\u0345\u0332") == U'\u0345');       // quick check "Maybe"
  CHECK(first_doubtful_for_nfc(U"\u05D0\u05B8\u05B7") == U'\u05B7');  // combining classes 18 before 17: out of order
  CHECK(replace_invalid_utf8("a\xF0\x9F\x98z\xFF") == "a\uFFFDz\uFFFD");
}
