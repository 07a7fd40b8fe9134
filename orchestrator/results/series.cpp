// Results::series.

#include <algorithm>
#include <vector>

#include "orchestrator/campaign/rows.h"
#include "orchestrator/results/results.h"

namespace amk {
namespace {

Result<SeriesPoint> read_point(sql::Connection& c, const rows::EndedPlace& place) {
  AMK_TRY(row, c.query("SELECT e.outcome, e.latency_us, e.bound_us, e.latency_kind, e.quarantined, "
                       "(SELECT json_extract(v.json, '$.noise.mad_us') FROM verdicts v WHERE v.id = e.verdict AND e.outcome = 0) "
                       "FROM experiments e WHERE e.id = ?1",
                       place.id));
  AMK_TRY(found, row.next());
  if (!found) return fail(ErrorKind::Corrupt, to_string(ExperimentId{place.id}) + " is in an index but not in its table");
  SeriesPoint p;
  p.end_seq = place.end_seq;
  p.experiment = ExperimentId{place.id};
  p.outcome = static_cast<Outcome>(row.i64(0));
  p.latency_us = row.opt_f64(1);
  p.bound_us = row.opt_f64(2);
  p.predicted = row.view(3) == "predicted";
  p.quarantined = row.i64(4) != 0;
  p.mad_us = row.opt_f64(5);
  return p;
}

}  // namespace

Result<std::int64_t> Results::series(CampaignId id, std::int64_t end_seq, const std::function<void(const SeriesPoint&)>& each) const {
  AMK_TRY(order, store_.read<std::vector<rows::EndedPlace>>([&](sql::Connection& c) { return rows::ended_places(c, id, end_seq); }));
  // In pieces, so that no snapshot is held for long; ended rows never change.
  constexpr std::size_t kPiece = 4000;
  for (std::size_t from = 0; from < order.size(); from += kPiece) {
    AMK_TRY(points, store_.read<std::vector<SeriesPoint>>([&](sql::Connection& c) -> Result<std::vector<SeriesPoint>> {
      std::vector<SeriesPoint> out;
      for (std::size_t i = from; i < std::min(from + kPiece, order.size()); ++i) {
        AMK_TRY(point, read_point(c, order[i]));
        out.push_back(point);
      }
      return out;
    }));
    for (const SeriesPoint& point : points) each(point);
  }
  return order.empty() ? end_seq : order.back().end_seq;
}

}  // namespace amk
