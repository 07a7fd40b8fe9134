#include "orchestrator/service/begin.h"

#include "core/base/json.h"

namespace amk {
namespace {

bool has_reason(const Error& error, std::string_view reason) { return error.data.is_object() && error.data.value("reason", "") == reason; }

}  // namespace

Result<Begun> begin_or_reopen(const CampaignCalls& calls, bool ignore_plateau) {
  constexpr int kRaces = 100;
  for (int race = 0; race < kRaces; ++race) {
    auto ticket = calls.begin();
    if (ticket) return Begun{*ticket, {}};
    if (!has_reason(ticket.error(), "campaign-done")) return tl::unexpected<Error>(ticket.error());
    AMK_TRY(info, calls.info());
    if (info.state != CampaignState::Done) continue;
    if (!ignore_plateau || info.done_reason != "plateau") return Begun{std::nullopt, info.done_reason};
    auto reopened = calls.reopen();
    // Still done: a budget or the floor ended it meanwhile; the next look says which.
    if (!reopened && !has_reason(reopened.error(), "still-done")) return tl::unexpected<Error>(reopened.error());
    if (!reopened) return Begun{std::nullopt, reopened.error().data.value("done_reason", "")};
  }
  return fail(ErrorKind::Conflict, "other loops ended the campaign " + std::to_string(kRaces) + " times before this one could begin an experiment",
              {{"reason", "campaign-done"}});
}

}  // namespace amk
