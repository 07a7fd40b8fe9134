#include "core/schedule/space.h"

#include <algorithm>

#include "core/base/hash.h"

namespace amk {

std::string_view to_string(KnobKind kind) {
  switch (kind) {
    case KnobKind::Ordinal:
      return "ordinal";
    case KnobKind::Categorical:
      return "categorical";
    case KnobKind::Boolean:
      return "boolean";
  }
  return "categorical";
}

Point SearchSpace::default_point() const {
  Point point;
  point.reserve(knobs.size());
  for (const Knob& knob : knobs) point.push_back(static_cast<std::uint16_t>(knob.default_index));
  return point;
}

bool SearchSpace::in_range(const Point& point) const {
  if (point.size() != knobs.size()) return false;
  for (std::size_t i = 0; i < knobs.size(); ++i)
    if (point[i] >= knobs[i].choices.size()) return false;
  return true;
}

const Constraint* SearchSpace::violated(const Point& point) const {
  for (const Constraint& constraint : constraints)
    if (!constraint.holds(point)) return &constraint;
  return nullptr;
}

double SearchSpace::size() const {
  double product = 1;
  for (const Knob& knob : knobs) product *= static_cast<double>(knob.choices.size());
  return product;
}

std::uint64_t SearchSpace::hash(const Point& point) const {
  // Bytes in a fixed order, so that the value does not depend on the machine's.
  std::string bytes;
  bytes.reserve(point.size() * 2);
  for (std::uint16_t choice : point) {
    bytes += static_cast<char>(choice & 0xFF);
    bytes += static_cast<char>(choice >> 8);
  }
  return hash64(bytes);
}

std::size_t SearchSpace::index_of(std::string_view knob) const {
  const auto at = std::find_if(knobs.begin(), knobs.end(), [&](const Knob& k) { return k.name == knob; });
  return static_cast<std::size_t>(at - knobs.begin());
}

std::vector<std::uint16_t> SearchSpace::places_of(const std::vector<std::string_view>& names) const {
  std::vector<std::uint16_t> out;
  for (std::size_t k = 0; k < knobs.size(); ++k)
    if (std::find(names.begin(), names.end(), knobs[k].name) != names.end()) out.push_back(static_cast<std::uint16_t>(k));
  return out;
}

Json to_json(const SearchSpace& space) {
  Json knobs = Json::array();
  for (const Knob& knob : space.knobs) {
    Json row = {{"name", knob.name},
                {"kind", to_string(knob.kind)},
                {"choices", knob.choices},
                {"default", knob.choices.at(knob.default_index)},
                {"meaning", knob.meaning}};
    if (!knob.unit.empty()) row["unit"] = knob.unit;  // agents read all of it: what says nothing is left out
    knobs.push_back(std::move(row));
  }
  Json constraints = Json::array();
  for (const Constraint& constraint : space.constraints) constraints.push_back({{"name", constraint.name}, {"reason", constraint.reason}});
  return {{"knobs", std::move(knobs)}, {"constraints", std::move(constraints)}, {"size", space.size()}};
}

}  // namespace amk
