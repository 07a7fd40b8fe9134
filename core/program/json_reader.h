// Reading of untrusted program JSON: every value checked for type and range, every refusal names its place. Internal to core/program.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/program/json_names.h"

namespace amk::program_json {

// Where a value stands in the document. Lives on the stack; the text is made only for a refusal.
struct Place {
  const Place* parent = nullptr;
  std::string_view key;     // of an object, or
  std::int64_t index = -1;  // of an array
  std::string text() const {
    if (parent == nullptr) return std::string(key);
    const std::string before = parent->text();
    return index >= 0 ? before + "[" + std::to_string(index) + "]" : before + "." + std::string(key);
  }
};

// Bytes, offsets and intervals: small enough that interval + stride * position cannot overflow 63 bits.
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 56;
constexpr std::int64_t kMaxStride = std::int64_t{1} << 36;
constexpr std::int64_t kMaxPosition = std::int64_t{1} << 24;
constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

// One object with known keys only: construct, read every key (an optional one if the object has it), then done() refuses what is left over.
class ObjectReader {
 public:
  ObjectReader(const Json& json, const Place& place) : json_(json), place_(place) {}

  const Place& place() const { return place_; }
  Result<const Json*> value(std::string_view key) {
    if (!json_.is_object()) return bad_field(place_.text(), json_, "an object");
    const auto at = json_.find(std::string(key));
    if (at == json_.end())
      return fail(ErrorKind::InvalidArgument, place_.text() + " has no key " + std::string(key), {{"field", place_.text()}, {"missing", key}});
    ++read_;
    return &*at;
  }
  bool has(std::string_view key) const { return json_.is_object() && json_.contains(std::string(key)); }
  Status done() const {
    if (json_.size() == read_) return {};
    return fail(ErrorKind::InvalidArgument,
                place_.text() + " has " + std::to_string(json_.size()) + " keys; accepted: the " + std::to_string(read_) + " of the schema",
                {{"field", place_.text()}, {"schema", "program.schema.json"}});
  }

  template <class Int>
  Status integer(std::string_view key, Int& out, std::int64_t low, std::int64_t high) {
    AMK_TRY(json, value(key));
    return read_integer(*json, {&place_, key}, out, low, high);
  }
  Status text(std::string_view key, std::string& out) {
    AMK_TRY(json, value(key));
    if (!json->is_string()) return bad_field(Place{&place_, key}.text(), *json, "a string");
    out = json->get<std::string>();
    return {};
  }
  Status boolean(std::string_view key, bool& out) {
    AMK_TRY(json, value(key));
    if (!json->is_boolean()) return bad_field(Place{&place_, key}.text(), *json, "true, false");
    out = json->get<bool>();
    return {};
  }
  Status number(std::string_view key, double& out) {
    AMK_TRY(json, value(key));
    if (!json->is_number()) return bad_field(Place{&place_, key}.text(), *json, "a number");
    out = json->get<double>();
    return {};
  }
  template <class E, std::size_t N>
  Status name(std::string_view key, const Names<E, N>& names, E& out) {
    AMK_TRY(json, value(key));
    return read_name(*json, {&place_, key}, names, out);
  }

  template <class Int>
  static Status read_integer(const Json& json, const Place& place, Int& out, std::int64_t low, std::int64_t high) {
    // A large unsigned number must not wrap into range.
    const bool fits = json.is_number_integer() && (!json.is_number_unsigned() ||
                                                   json.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
    const std::int64_t v = fits ? json.get<std::int64_t>() : 0;
    if (!fits || v < low || v > high) return bad_field(place.text(), json, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
    out = static_cast<Int>(v);
    return {};
  }
  template <class E, std::size_t N>
  static Status read_name(const Json& json, const Place& place, const Names<E, N>& names, E& out) {
    if (json.is_string())
      if (const auto found = value_of(names, json.get_ref<const std::string&>())) {
        out = *found;
        return {};
      }
    std::string accepted;
    for (const auto& [unused, n] : names) accepted += (accepted.empty() ? "" : ", ") + std::string(n);
    return bad_field(place.text(), json, accepted);
  }

 private:
  const Json& json_;
  Place place_;
  std::size_t read_ = 0;
};

// Calls each(element, place) for every element of an array of at most `limit`; stops at the first refusal.
template <class Each>
Status read_array(const Json& json, const Place& place, std::int64_t limit, Each each) {
  if (!json.is_array()) return bad_field(place.text(), json, "a list");
  if (static_cast<std::int64_t>(json.size()) > limit)
    return fail(ErrorKind::InvalidArgument,
                place.text() + " has " + std::to_string(json.size()) + " elements; accepted: at most " + std::to_string(limit),
                {{"field", place.text()}, {"value", json.size()}, {"accepted", limit}});
  std::int64_t index = 0;
  for (const Json& element : json) {
    AMK_CHECK(each(element, Place{&place, {}, index}));
    ++index;
  }
  return {};
}

}  // namespace amk::program_json
