// The query of a GET as arguments. Values are untrusted text. Value types.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace amk::dashboard {

class Query {
 public:
  // "a=1&b=x%20y&b=z", percent-decoded, '+' is a space. InvalidArgument names the argument that is malformed or not in `accepted`.
  static Result<Query> parse(std::string_view text, const std::vector<std::string>& accepted);

  const std::vector<std::string>& all(const std::string& name) const;  // empty: not given
  // The single value; InvalidArgument when it is missing or repeated.
  Result<std::string> required(const std::string& name) const;
  Result<std::string> text(const std::string& name, std::string fallback = "") const;
  Result<std::int64_t> integer(const std::string& name, std::int64_t fallback, std::int64_t least, std::int64_t most) const;
  Result<std::optional<double>> number(const std::string& name) const;  // finite

 private:
  std::map<std::string, std::vector<std::string>> values_;
};

}  // namespace amk::dashboard
