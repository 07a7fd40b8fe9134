#include "server/dashboard/query.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "server/protocol/uri_template.h"

namespace amk::dashboard {
namespace {

// As forms encode it: a plus is a space.
std::optional<std::string> decoded(std::string_view text) {
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), '+', ' ');
  return mcp::percent_decode(spaced);
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out.empty() ? "no argument" : out;
}

template <class T>
std::optional<T> parse_number(const std::string& text) {
  T value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Result<Query> Query::parse(std::string_view text, const std::vector<std::string>& accepted) {
  Query query;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('&'), text.size());
    const std::string_view pair = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (pair.empty()) continue;
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const auto name = decoded(pair.substr(0, equals));
    const auto value = decoded(equals < pair.size() ? pair.substr(equals + 1) : std::string_view());
    if (!name || !value) return bad_field("query", std::string(pair), "names and values in percent encoding");
    if (std::find(accepted.begin(), accepted.end(), *name) == accepted.end()) return bad_field("argument", *name, listed(accepted));
    query.values_[*name].push_back(*value);
  }
  return query;
}

const std::vector<std::string>& Query::all(const std::string& name) const {
  static const std::vector<std::string> none;
  const auto found = values_.find(name);
  return found == values_.end() ? none : found->second;
}

Result<std::string> Query::required(const std::string& name) const {
  const auto& values = all(name);
  if (values.size() == 1 && !values[0].empty()) return values[0];
  return bad_field(name, values, "exactly one value");
}

Result<std::string> Query::text(const std::string& name, std::string fallback) const {
  const auto& values = all(name);
  if (values.empty()) return fallback;
  if (values.size() > 1) return bad_field(name, values, "at most one value");
  return values[0];
}

Result<std::int64_t> Query::integer(const std::string& name, std::int64_t fallback, std::int64_t least, std::int64_t most) const {
  AMK_TRY(given, text(name));
  if (given.empty()) return fallback;
  const auto value = parse_number<std::int64_t>(given);
  if (!value || *value < least || *value > most)
    return bad_field(name, given, "an integer from " + std::to_string(least) + " to " + std::to_string(most));
  return *value;
}

Result<std::optional<double>> Query::number(const std::string& name) const {
  AMK_TRY(given, text(name));
  if (given.empty()) return std::optional<double>();
  const auto value = parse_number<double>(given);
  if (!value || !std::isfinite(*value)) return bad_field(name, given, "a finite number");
  return value;
}

}  // namespace amk::dashboard
