// tokenizer.json -> Tokenizer::Tables. The format has no specification but its implementation (https://github.com/huggingface/tokenizers):
// a part or field that is not known here could change the ids, so it is refused by name.
#include <algorithm>
#include <array>

#include "core/base/parse_json.h"
#include "core/model/config_fields.h"
#include "core/model/shards.h"
#include "core/model/tokenizer_tables.h"

namespace amk {
namespace {

using Tables = Tokenizer::Tables;
using Prepend = Tables::Prepend;

constexpr std::size_t kMaxTokenizerBytes = 64u << 20;
constexpr int kMaxTokenId = 1 << 21;  // public vocabularies end at 262,144; a table this long stays small

// The parts of a "Sequence", or the part itself, or nothing for null. `list` is the name of the array inside a Sequence.
Result<std::vector<const Json*>> parts_of(const Json& root, std::string_view key, std::string_view list) {
  std::vector<const Json*> parts;
  const auto it = root.find(key);
  if (it == root.end() || it->is_null()) return parts;
  if (!it->is_object() || !it->contains("type") || !(*it)["type"].is_string()) return bad_field(key, *it, "null or an object with a type");
  if ((*it)["type"] != "Sequence") return std::vector<const Json*>{&*it};
  const auto inner = it->find(list);
  if (inner == it->end() || !inner->is_array()) return bad_field(std::string(key) + "." + std::string(list), it->value(list, Json()), "an array");
  for (const Json& part : *inner) {
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) return bad_field(key, part, "an object with a type");
    parts.push_back(&part);
  }
  return parts;
}

std::string type_of(const Json& part) { return part["type"].get<std::string>(); }

bool is_token_id(const Json& v) {
  // Built values are signed, parsed ones unsigned, and above INT64_MAX the signed reading would wrap.
  return v.is_number_integer() && (!v.is_number_unsigned() || v.get<std::uint64_t>() < kMaxTokenId) && v.get<std::int64_t>() >= 0 &&
         v.get<std::int64_t>() < kMaxTokenId;
}

Status read_vocab(const Json& model, BpeModel& bpe) {
  const auto vocab = model.find("vocab");
  if (vocab == model.end() || !vocab->is_object()) return bad_field("model.vocab", model.value("vocab", Json()), "an object of token to id");
  for (const auto& [token, id] : vocab->items()) {
    const std::string where = "model.vocab[\"" + token.substr(0, 50) + "\"]";
    if (!is_token_id(id)) return bad_field(where, id, "an integer below 2097152");
    const auto at = id.get<std::size_t>();
    if (at >= bpe.token_of.size()) bpe.token_of.resize(at + 1);
    if (token.empty() || !bpe.token_of[at].empty()) return bad_field(where, id, "tokens that are not empty, ids used once");
    bpe.token_of[at] = token;
    bpe.vocab.emplace(token, static_cast<int>(at));
  }
  return {};
}

Status read_merges(const Json& model, BpeModel& bpe) {
  const auto merges = model.find("merges");
  if (merges == model.end() || !merges->is_array()) return bad_field("model.merges", model.value("merges", Json()), "an array");
  int rank = 0;
  for (const Json& merge : *merges) {
    const std::string where = "model.merges[" + std::to_string(rank) + "]";
    std::string left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>(), right = merge[1].get<std::string>();
    } else if (merge.is_string()) {  // "left right": neither can hold a space in this older form
      const auto text = merge.get<std::string>();
      const auto space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        return bad_field(where, merge, "two tokens with one space between");
      left = text.substr(0, space), right = text.substr(space + 1);
    } else {
      return bad_field(where, merge, "a string or a pair of strings");
    }
    const auto l = bpe.vocab.find(left), r = bpe.vocab.find(right), merged = bpe.vocab.find(left + right);
    if (l == bpe.vocab.end() || r == bpe.vocab.end() || merged == bpe.vocab.end())
      return bad_field(where, merge, "tokens of the vocabulary that join to one");
    bpe.merges[BpeModel::key(l->second, r->second)] = {rank++, merged->second};  // of equal pairs the last counts, as in the original
  }
  return {};
}

Status read_model(const Json& root, BpeModel& bpe) {
  const auto it = root.find("model");
  if (it == root.end() || !it->is_object()) return bad_field("model", root.value("model", Json()), "an object");
  const Fields f(*it, "model.");
  AMK_TRY(type, f.text("type", "BPE"));  // the oldest files leave it out
  if (type != "BPE") return unsupported_field("model.type", type, "BPE");
  if (f.given("dropout") && *f.find("dropout") != 0.0) return unsupported_field("model.dropout", *f.find("dropout"), "null");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    AMK_TRY(text, f.text(affix, ""));
    if (!text.empty()) return unsupported_field(f.path(affix), text, "null");
  }
  AMK_TRY(byte_fallback, f.boolean("byte_fallback", false));
  AMK_TRY(ignore_merges, f.boolean("ignore_merges", false));
  AMK_TRY(fuse, f.boolean("fuse_unk", false));
  bpe.byte_fallback = byte_fallback, bpe.ignore_merges = ignore_merges, bpe.fuse_unknown = fuse;
  AMK_CHECK(read_vocab(*it, bpe));
  AMK_CHECK(read_merges(*it, bpe));
  if (f.given("unk_token")) {
    AMK_TRY(unknown, f.text("unk_token"));
    const auto id = bpe.vocab.find(unknown);
    if (id == bpe.vocab.end()) return bad_field("model.unk_token", unknown, "a token of the vocabulary");
    bpe.unknown = id->second;
  }
  return {};
}

Status read_normalizer(const Json& root, Tables& t) {
  AMK_TRY(parts, parts_of(root, "normalizer", "normalizers"));
  for (const Json* part : parts) {
    const std::string type = type_of(*part);
    if (type == "NFC") {
      t.require_nfc = true;
    } else if (type == "Prepend" && part->value("prepend", Json()) == kSpaceMark) {
      t.prepend = Prepend::Always;
    } else if (type == "Replace" && part->value("pattern", Json()) == Json({{"String", " "}}) && part->value("content", Json()) == kSpaceMark) {
      t.mark_spaces = true;
    } else {
      return unsupported_field("normalizer", *part, "NFC, Prepend and Replace of the space mark U+2581");
    }
  }
  return {};
}

Status read_split(const Json& part, Tables& t) {
  const Json pattern = part.value("pattern", Json());
  const Json regex = pattern.is_object() ? pattern.value("Regex", Json()) : Json();
  const auto known = regex.is_string() ? split_pattern(regex.get<std::string>()) : std::nullopt;
  if (!known) return unsupported_field("pre_tokenizer.pattern", pattern, "the regular expressions of GPT-2, Llama-3 and Qwen2");
  // Every character is in a match, so matches kept apart and gaps removed come to the same.
  const bool invert = part.value("invert", Json(false)) == true;
  const Json behavior = part.value("behavior", Json());
  if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert))
    return unsupported_field("pre_tokenizer.behavior", behavior, "Isolated, or Removed with invert");
  t.pattern = *known;
  return {};
}

Status read_metaspace(const Json& part, Tables& t) {
  const Fields f(part, "pre_tokenizer.");
  AMK_TRY(mark, f.text("replacement", std::string(kSpaceMark)));
  if (mark != kSpaceMark) return unsupported_field("pre_tokenizer.replacement", mark, "the space mark U+2581");
  AMK_TRY(add, f.boolean("add_prefix_space", true));  // before prepend_scheme existed
  AMK_TRY(scheme, f.text("prepend_scheme", add ? "always" : "never"));
  AMK_TRY(split, f.boolean("split", true));
  if (scheme != "always" && scheme != "first" && scheme != "never")
    return unsupported_field("pre_tokenizer.prepend_scheme", scheme, "always, first, never");
  t.prepend = scheme == "always" ? Prepend::Always : scheme == "first" ? Prepend::First : Prepend::Never;
  t.mark_spaces = true;
  t.prepend_unless_there = true;
  t.split_at_marks = split;
  return {};
}

Status read_pre_tokenizer(const Json& root, Tables& t) {
  AMK_TRY(parts, parts_of(root, "pre_tokenizer", "pretokenizers"));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Json& part = *parts[i];
    const std::string type = type_of(part);
    const Fields f(part, "pre_tokenizer.");
    const bool last = i + 1 == parts.size();
    if (type == "ByteLevel" && last) {
      AMK_TRY(prefix, f.boolean("add_prefix_space", true));
      AMK_TRY(regex, f.boolean("use_regex", true));
      if (prefix && parts.size() != 1) return unsupported_field("pre_tokenizer.add_prefix_space", true, "false after other parts");
      if (regex && t.pattern) return unsupported_field("pre_tokenizer.use_regex", true, "false after a Split");
      t.byte_level = true;
      t.add_prefix_space = prefix;
      if (regex) t.pattern = SplitPattern::Gpt2;
    } else if (type == "Split" && !last && !t.pattern && !t.digits_apart) {
      AMK_CHECK(read_split(part, t));
    } else if (type == "Digits" && !last && i == 0) {
      AMK_TRY(individual, f.boolean("individual_digits", false));
      if (!individual) return unsupported_field("pre_tokenizer.individual_digits", false, "true");
      t.digits_apart = true;
    } else if (type == "Metaspace" && parts.size() == 1 && t.prepend == Prepend::Never && !t.mark_spaces) {
      AMK_CHECK(read_metaspace(part, t));
    } else {
      return unsupported_field("pre_tokenizer", type, "ByteLevel, Split then ByteLevel, Digits then ByteLevel, Metaspace, null");
    }
  }
  if (t.byte_level && (t.prepend != Prepend::Never || t.mark_spaces))
    return unsupported_field("normalizer", root["normalizer"], "NFC or null with ByteLevel");
  return {};
}

Status read_decoder(const Json& root, Tables& t) {
  AMK_TRY(parts, parts_of(root, "decoder", "decoders"));
  const char* accepted = t.byte_level ? "ByteLevel" : "Replace of the space mark, ByteFallback, Fuse, Strip of one leading space, Metaspace";
  if (parts.empty()) return unsupported_field("decoder", root.value("decoder", Json()), accepted);
  for (const Json* part : parts) {
    const std::string type = type_of(*part);
    const Fields f(*part, "decoder.");
    if (t.byte_level ? type == "ByteLevel" : type == "Fuse") continue;
    if (t.byte_level) return unsupported_field("decoder", *part, accepted);
    if (type == "ByteFallback") {
      t.join_bytes = true;
    } else if (type == "Replace" && part->value("pattern", Json()) == Json({{"String", kSpaceMark}}) && part->value("content", Json()) == " ") {
      t.unmark_spaces = true;
    } else if (type == "Strip" && part->value("content", Json()) == " " && part->value("start", Json()) == 1 && part->value("stop", Json()) == 0) {
      t.strip_leading_space = true;
    } else if (type == "Metaspace" && part->value("replacement", Json()) == kSpaceMark) {
      AMK_TRY(add, f.boolean("add_prefix_space", true));
      AMK_TRY(scheme, f.text("prepend_scheme", add ? "always" : "never"));
      t.unmark_spaces = true;
      t.strip_leading_space = scheme != "never";
    } else {
      return unsupported_field("decoder", *part, accepted);
    }
  }
  return {};
}

Status read_template(const Json& part, Tables& t) {
  const Json single = part.value("single", Json());
  const Json tokens = part.value("special_tokens", Json::object());
  if (!single.is_array() || !tokens.is_object()) return bad_field("post_processor.single", single, "an array");
  bool text_seen = false;
  for (const Json& piece : single) {
    if (piece.is_object() && piece.contains("Sequence") && !text_seen) {
      text_seen = true;
      continue;
    }
    const Json special = piece.is_object() ? piece.value("SpecialToken", Json()) : Json();
    const Json id = special.is_object() ? special.value("id", Json()) : Json();
    const Json entry = id.is_string() ? tokens.value(id.get<std::string>(), Json()) : Json();
    const Json ids = entry.is_object() ? entry.value("ids", Json()) : Json();
    if (!ids.is_array()) return bad_field("post_processor.single", piece, "one Sequence, and SpecialTokens that special_tokens lists");
    for (const Json& n : ids) {
      if (!is_token_id(n)) return bad_field("post_processor.special_tokens", n, "token ids");
      (text_seen ? t.after : t.before).push_back(n.get<int>());
    }
  }
  if (!text_seen) return bad_field("post_processor.single", single, "one Sequence among its pieces");
  return {};
}

Status read_post_processor(const Json& root, Tables& t) {
  AMK_TRY(parts, parts_of(root, "post_processor", "processors"));
  int templates = 0;
  for (const Json* part : parts) {
    const std::string type = type_of(*part);
    if (type == "ByteLevel") continue;  // moves offsets only
    if (type != "TemplateProcessing" || ++templates > 1) return unsupported_field("post_processor", type, "ByteLevel and one TemplateProcessing");
    AMK_CHECK(read_template(*part, t));
  }
  return {};
}

Status read_added(const Json& root, Tables& t) {
  const auto list = root.find("added_tokens");
  if (list == root.end() || list->is_null()) return {};
  if (!list->is_array()) return bad_field("added_tokens", *list, "an array");
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    const std::string where = "added_tokens[" + std::to_string(i) + "]";
    if (!entry.is_object()) return bad_field(where, entry, "an object");
    const Fields f(entry, where + ".");
    AMK_TRY(content, f.text("content"));
    AMK_TRY(id, f.integer("id", 0, kMaxTokenId - 1));
    AMK_TRY(special, f.boolean("special", false));
    AddedToken token{id, special, nullptr};
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
      AMK_TRY(on, f.boolean(flag, false));
      if (on) token.refused = flag;
    }
    // A normalised token is searched for in normalised text, after a mark has been put before it.
    AMK_TRY(normalized, f.boolean("normalized", !special));
    if (normalized && t.prepend == Prepend::Always && !t.prepend_unless_there) token.refused = "normalized";
    if (content.empty()) return bad_field(f.path("content"), content, "not empty");
    // A token that the vocabulary has too must have the same id there, and no other token may have that id.
    const auto in_vocab = t.bpe.vocab.find(content);
    const bool id_taken = static_cast<std::size_t>(id) < t.bpe.token_of.size() && !t.bpe.token_of[static_cast<std::size_t>(id)].empty();
    if (in_vocab != t.bpe.vocab.end() ? in_vocab->second != id : (id_taken || t.added_text.count(id) != 0))
      return bad_field(f.path("id"), id, "the vocabulary's id of this token, or one that no token has");
    if (!t.added.emplace(content, token).second) return bad_field(f.path("content"), content, "tokens listed once");
    t.added_text[id] = content;
    t.longest_added = std::max(t.longest_added, content.size());
  }
  return {};
}

}  // namespace

Result<Tokenizer> Tokenizer::from_json(const Json& root) {
  if (!root.is_object()) return bad_field("tokenizer.json", root, "a JSON object");
  if (root.contains("truncation") && !root["truncation"].is_null()) return unsupported_field("truncation", root["truncation"], "null");
  auto t = std::make_shared<Tables>();
  AMK_CHECK(read_model(root, t->bpe));
  AMK_CHECK(read_normalizer(root, *t));
  AMK_CHECK(read_pre_tokenizer(root, *t));
  AMK_CHECK(read_decoder(root, *t));
  AMK_CHECK(read_post_processor(root, *t));
  AMK_CHECK(read_added(root, *t));
  t->size = static_cast<int>(t->bpe.token_of.size());
  for (const auto& [id, text] : t->added_text) t->size = std::max(t->size, id + 1);
  for (const auto* around : {&t->before, &t->after})
    for (const int id : *around)
      if (t->added_text.count(id) == 0 &&
          (static_cast<std::size_t>(id) >= t->bpe.token_of.size() || t->bpe.token_of[static_cast<std::size_t>(id)].empty()))
        return bad_field("post_processor.special_tokens", id, "ids of tokens");
  return Tokenizer(std::move(t));
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  AMK_TRY(text, read_text_file(path, kMaxTokenizerBytes));
  AMK_TRY(json, parse_json(text, path.string(), {.max_bytes = kMaxTokenizerBytes}));
  auto tokenizer = from_json(json);
  if (!tokenizer) tokenizer.error().message = path.string() + ": " + tokenizer.error().message;
  return tokenizer;
}

}  // namespace amk
