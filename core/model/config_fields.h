// Typed, named access to the fields of an untrusted config. An explicit null counts as absent where a default exists. Internal to core/model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace amk {

tl::unexpected<Error> unsupported_field(std::string_view field, const Json& value, std::string_view accepted);

class Fields {
 public:
  // `object` must be a JSON object and outlive this. `prefix` is put before names in errors ("rope_scaling.").
  explicit Fields(const Json& object, std::string prefix = {}) : object_(object), prefix_(std::move(prefix)) {}

  const Json* find(std::string_view key) const;  // null pointer if absent; may point at a JSON null
  bool given(std::string_view key) const;        // present and not null
  std::string path(std::string_view key) const { return prefix_ + std::string(key); }

  // An integer in [low, high]; absent or null: `otherwise`, or an error if there is none.
  Result<int> integer(std::string_view key, std::int64_t low, std::int64_t high, std::optional<int> otherwise = std::nullopt) const;
  // A finite number in [low, high].
  Result<double> number(std::string_view key, double low, double high, std::optional<double> otherwise = std::nullopt) const;
  Result<bool> boolean(std::string_view key, bool otherwise) const;
  Result<std::string> text(std::string_view key, std::optional<std::string> otherwise = std::nullopt) const;

 private:
  const Json& object_;
  std::string prefix_;
};

}  // namespace amk
