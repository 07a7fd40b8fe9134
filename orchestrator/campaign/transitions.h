// The steps of the state machine, inside the caller's write transaction. They keep the campaign's counts equal to what its rows say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "orchestrator/campaign/rows.h"

namespace amk::transitions {

// How one experiment ends. The verdict's figures are stored only with a correctness PASS.
struct Ending {
  ExperimentId experiment{};
  std::int64_t config = 0;
  Judgement judgement;
  std::optional<std::int64_t> verdict_row;
  const Verdict* verdict = nullptr;
  std::int64_t generation = 0;  // from now on: reports of lower ones are stale
  std::int64_t wall_us = 0, duration_us = 0, charged_us = 0;
  std::string phases;  // JSON text or empty
};
// `campaign` is changed, not saved; the experiment was counted as running.
Status end_experiment(sql::Connection& c, rows::Campaign& campaign, const Ending& ending);

// Applies the stop rules: optimizing or baseline -> done. `uncharged_us` is time spent that no row carries yet.
Status advance(sql::Connection& c, rows::Campaign& campaign, std::int64_t uncharged_us);

// Conflict {"reason": "campaign-done"} when it is.
Status refuse_done(const rows::Campaign& campaign);

std::string_view correctness_word(Outcome outcome);  // PASS, FAIL, REJECTED, TIMEOUT, CRASH, LOST

struct Started {
  std::int64_t config = 0;
  ExperimentId experiment{};
  std::int64_t seq = 0;
};
// A new row, queued or running (then leased until `lease_until_us`). `campaign` is changed, not saved.
Result<Started> add_experiment(sql::Connection& c, rows::Campaign& campaign, const BeginRequest& request, const std::string& config_text,
                               bool running, std::int64_t incarnation, std::int64_t wall_us, std::int64_t boot_us);

// The counts again, from the experiments alone.
Result<rows::Campaign> recount(sql::Connection& c, CampaignId id);

}  // namespace amk::transitions
