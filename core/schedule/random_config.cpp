#include "core/schedule/random_config.h"

#include <algorithm>

#include "core/schedule/fields.h"
#include "core/schedule/fusion.h"
#include "core/schedule/rules.h"

namespace amk {
namespace {

constexpr int kTries = 1000;

std::int64_t random_accepted(const Field& field, Rng& rng) {
  switch (field.type) {
    case FieldType::Boolean:
      return static_cast<std::int64_t>(rng.below(2));
    case FieldType::Name:
      return static_cast<std::int64_t>(rng.below(field.names.size()));
    case FieldType::Integer:
      break;
  }
  if (!field.accepted.empty()) return field.accepted[rng.below(field.accepted.size())];
  return field.low + field.step * static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>((field.high - field.low) / field.step + 1)));
}

}  // namespace

Point random_point(const SearchSpace& space, Rng& rng) {
  Point point(space.knobs.size());
  for (int attempt = 0; attempt < kTries; ++attempt) {
    for (std::size_t i = 0; i < point.size(); ++i) point[i] = static_cast<std::uint16_t>(rng.below(space.knobs[i].choices.size()));
    if (space.violated(point) == nullptr) return point;
  }
  return space.default_point();
}

ScheduleConfig random_config(const SearchSpace& space, Rng& rng) { return config_at(space, random_point(space, rng)); }

std::vector<Point> neighbours(const SearchSpace& space, const Point& point, bool near_only) {
  std::vector<Point> found;
  for (std::size_t i = 0; i < space.knobs.size(); ++i) {
    const bool near = near_only && space.knobs[i].kind == KnobKind::Ordinal;
    for (std::size_t choice = 0; choice < space.knobs[i].choices.size(); ++choice) {
      if (choice == point[i] || (near && choice + 1 != point[i] && choice != point[i] + 1u)) continue;
      Point other = point;
      other[i] = static_cast<std::uint16_t>(choice);
      if (space.violated(other) == nullptr) found.push_back(std::move(other));
    }
  }
  return found;
}

ScheduleConfig random_accepted_config(std::int64_t smem_cap_bytes, Rng& rng) {
  ScheduleConfig config;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    // Keys that have their default silently are an option few configs take: one in three here.
    for (const Field& field : schedule_fields())
      field.set(config, field.silent_default && rng.below(3) != 0 ? field.get(ScheduleConfig{}) : random_accepted(field, rng));
    for (const FusionAtom& atom : fusion_atoms()) config.fusion.*atom.member = rng.below(2) == 1;
    config.smem_bytes_per_block = static_cast<int>(std::min<std::int64_t>(config.smem_bytes_per_block, smem_cap_bytes / 1024 * 1024));
    if (violated_rule(config) == nullptr) return config;
  }
  config = ScheduleConfig{};
  config.smem_bytes_per_block = 0;
  return config;
}

}  // namespace amk
