#include "core/model/config_fields.h"

#include <cmath>

namespace amk {
namespace {

std::string shown(double v) { return Json(v).dump(); }

tl::unexpected<Error> missing(const std::string& field, std::string_view accepted) {
  return fail(ErrorKind::InvalidArgument, field + " is missing; accepted: " + std::string(accepted),
              {{"field", field}, {"value", nullptr}, {"accepted", accepted}});
}

}  // namespace

tl::unexpected<Error> unsupported_field(std::string_view field, const Json& value, std::string_view accepted) {
  auto e = bad_field(field, value, accepted);
  e.value().kind = ErrorKind::Unsupported;
  return e;
}

const Json* Fields::find(std::string_view key) const {
  const auto it = object_.find(key);
  return it == object_.end() ? nullptr : &*it;
}

bool Fields::given(std::string_view key) const {
  const Json* v = find(key);
  return v != nullptr && !v->is_null();
}

Result<int> Fields::integer(std::string_view key, std::int64_t low, std::int64_t high, std::optional<int> otherwise) const {
  const std::string accepted = "an integer from " + std::to_string(low) + " to " + std::to_string(high);
  if (!given(key)) {
    if (otherwise) return *otherwise;
    return missing(path(key), accepted);
  }
  const Json& v = *find(key);
  if (!v.is_number_integer()) return bad_field(path(key), v, accepted);
  // Unsigned values above int64 would wrap in get<int64_t>().
  if (v.is_number_unsigned() && v.get<std::uint64_t>() > static_cast<std::uint64_t>(high)) return bad_field(path(key), v, accepted);
  const auto n = v.get<std::int64_t>();
  if (n < low || n > high) return bad_field(path(key), v, accepted);
  return static_cast<int>(n);
}

Result<double> Fields::number(std::string_view key, double low, double high, std::optional<double> otherwise) const {
  const std::string accepted = "a number from " + shown(low) + " to " + shown(high);
  if (!given(key)) {
    if (otherwise) return *otherwise;
    return missing(path(key), accepted);
  }
  const Json& v = *find(key);
  if (!v.is_number()) return bad_field(path(key), v, accepted);
  const auto n = v.get<double>();
  if (!(n >= low && n <= high)) return bad_field(path(key), v, accepted);  // written so that a NaN fails
  return n;
}

Result<bool> Fields::boolean(std::string_view key, bool otherwise) const {
  if (!given(key)) return otherwise;
  const Json& v = *find(key);
  if (!v.is_boolean()) return bad_field(path(key), v, "true or false");
  return v.get<bool>();
}

Result<std::string> Fields::text(std::string_view key, std::optional<std::string> otherwise) const {
  if (!given(key)) {
    if (otherwise) return *otherwise;
    return missing(path(key), "a string");
  }
  const Json& v = *find(key);
  if (!v.is_string()) return bad_field(path(key), v, "a string");
  return v.get<std::string>();
}

}  // namespace amk
