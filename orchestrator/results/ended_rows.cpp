#include "orchestrator/results/ended_rows.h"

#include <utility>

#include "orchestrator/campaign/rows.h"
#include "orchestrator/results/row_json.h"

namespace amk {

Result<std::vector<EndedRow>> ended_rows(const Store& store, std::int64_t end_seq, int count) {
  return store.read<std::vector<EndedRow>>([=](sql::Connection& c) -> Result<std::vector<EndedRow>> {
    std::vector<EndedRow> out;
    AMK_TRY(row, c.query(AMK_EXPERIMENT_SELECT "WHERE e.end_seq > ?1 ORDER BY e.end_seq LIMIT ?2", end_seq, count));
    for (;;) {
      AMK_TRY(more, row.next());
      if (!more) break;
      AMK_TRY(experiment, rows::read_experiment(row));
      out.push_back({row.i64(rows::kEndSeqColumn), std::move(experiment), {}});
    }
    CampaignCache campaigns;
    for (EndedRow& ended : out) {
      AMK_TRY(campaign, campaigns.get(c, ended.experiment.campaign));
      ended.campaign = *campaign;
    }
    return out;
  });
}

}  // namespace amk
