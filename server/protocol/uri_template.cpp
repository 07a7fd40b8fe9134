#include "server/protocol/uri_template.h"

namespace amk::mcp {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_value(text[i + 1]), low = hex_value(text[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

std::optional<std::map<std::string, std::string>> match_uri_template(std::string_view pattern, std::string_view uri) {
  std::map<std::string, std::string> variables;
  while (true) {
    const std::size_t open = pattern.find('{');
    const std::string_view literal = pattern.substr(0, open);
    if (!uri.starts_with(literal)) return std::nullopt;
    uri.remove_prefix(literal.size());
    if (open == std::string_view::npos) {
      if (!uri.empty()) return std::nullopt;
      return variables;
    }
    const std::size_t close = pattern.find('}', open);
    if (close == std::string_view::npos) return std::nullopt;
    const std::string name(pattern.substr(open + 1, close - open - 1));
    pattern.remove_prefix(close + 1);
    // The variable ends where the literal after it begins; at the end of the template it takes the rest.
    const std::string_view after = pattern.substr(0, pattern.find('{'));
    std::size_t length = uri.size();
    if (pattern.find('{') == std::string_view::npos) {
      if (uri.size() < after.size()) return std::nullopt;
      length = uri.size() - after.size();
    } else if (!after.empty()) {
      if (uri.empty()) return std::nullopt;
      const std::size_t at = uri.find(after, 1);
      if (at == std::string_view::npos) return std::nullopt;
      length = at;
    } else if (!pattern.empty()) {
      length = uri.empty() ? 0 : 1;  // two variables side by side: the first takes as little as it may
    }
    const std::string_view raw = uri.substr(0, length);
    if (raw.empty() || raw.find('/') != std::string_view::npos) return std::nullopt;
    auto value = percent_decode(raw);
    if (!value) return std::nullopt;
    variables[name] = *std::move(value);
    uri.remove_prefix(length);
  }
}

}  // namespace amk::mcp
