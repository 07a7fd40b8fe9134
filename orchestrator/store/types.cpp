#include "orchestrator/store/types.h"

#include <array>
#include <charconv>

namespace amk {
namespace {

constexpr std::array<std::string_view, 3> kCampaignStates{"baseline", "optimizing", "done"};
constexpr std::array<std::string_view, kOutcomes> kOutcomeWords{"kept", "revert", "inconclusive", "failed", "crash", "timeout", "rejected", "lost"};
constexpr std::array<std::string_view, 3> kExperimentStates{"queued", "running", "ended"};

template <std::size_t N>
std::string joined(const std::array<std::string_view, N>& words) {
  std::string out;
  for (std::string_view word : words) {
    if (!out.empty()) out += ", ";
    out += word;
  }
  return out;
}

template <class E, std::size_t N>
Result<E> word_from(std::string_view field, std::string_view text, const std::array<std::string_view, N>& words) {
  for (std::size_t i = 0; i < N; ++i)
    if (words[i] == text) return static_cast<E>(i);
  return bad_field(field, text, joined(words));
}

Result<std::int64_t> id_from(std::string_view field, char letter, std::string_view text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  // "c01" and "c1" would name one campaign twice: leading zeros are refused.
  if (text.size() >= 2 && text[0] == letter && text[1] >= '1' && text[1] <= '9')
    if (auto [at, code] = std::from_chars(text.data() + 1, end, value); code == std::errc() && at == end) return value;
  return bad_field(field, text, std::string(1, letter) + "<number>, e.g. " + letter + "1");
}

}  // namespace

std::string to_string(CampaignId id) { return "c" + std::to_string(raw(id)); }
std::string to_string(ExperimentId id) { return "e" + std::to_string(raw(id)); }

Result<CampaignId> campaign_id_from(std::string_view text) {
  AMK_TRY(value, id_from("campaign", 'c', text));
  return CampaignId{value};
}
Result<ExperimentId> experiment_id_from(std::string_view text) {
  AMK_TRY(value, id_from("experiment", 'e', text));
  return ExperimentId{value};
}

std::string_view to_string(CampaignState state) { return kCampaignStates[static_cast<std::size_t>(state)]; }
Result<CampaignState> campaign_state_from(std::string_view text) { return word_from<CampaignState>("state", text, kCampaignStates); }

std::string_view to_string(Outcome outcome) { return kOutcomeWords[static_cast<std::size_t>(outcome)]; }
Result<Outcome> outcome_from(std::string_view text) { return word_from<Outcome>("status", text, kOutcomeWords); }

std::string_view to_string(ExperimentState state) { return kExperimentStates[static_cast<std::size_t>(state)]; }

}  // namespace amk
