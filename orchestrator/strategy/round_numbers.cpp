#include "orchestrator/strategy/round_numbers.h"

#include <algorithm>
#include <cmath>

#include "core/base/json.h"

namespace amk {
namespace {

constexpr std::size_t kFewestOfEither = 2;

bool power_of_two(const Json& choice) {
  if (!choice.is_number()) return false;
  int exponent = 0;
  const double value = choice.get<double>();
  return value >= 1 && std::frexp(value, &exponent) == 0.5;
}

}  // namespace

std::vector<bool> powers_of_two(const Knob& knob) {
  if (knob.kind != KnobKind::Ordinal) return {};
  std::vector<bool> out;
  std::size_t count = 0;
  for (const Json& choice : knob.choices) out.push_back(power_of_two(choice)), count += out.back();
  if (count < kFewestOfEither || out.size() - count < kFewestOfEither) return {};
  return out;
}

std::uint16_t nearest_power_of_two(const Knob& knob, std::uint16_t choice) {
  if (!knob.choices[choice].is_number()) return choice;
  const double value = std::max(knob.choices[choice].get<double>(), 0.5);
  std::uint16_t nearest = choice;
  double farthest = HUGE_VAL;
  for (std::size_t c = 0; c < knob.choices.size(); ++c) {
    if (!power_of_two(knob.choices[c])) continue;
    const double away = std::abs(std::log2(knob.choices[c].get<double>() / value));
    if (away < farthest) farthest = away, nearest = static_cast<std::uint16_t>(c);
  }
  return nearest;
}

}  // namespace amk
