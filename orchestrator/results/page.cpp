// Results::page: rows in order, a bounded amount of work a page whatever the filters.
#include <algorithm>
#include <limits>
#include <utility>

#include "orchestrator/campaign/json.h"
#include "orchestrator/campaign/rows.h"
#include "orchestrator/results/cursor.h"
#include "orchestrator/results/results.h"
#include "orchestrator/results/row_json.h"

namespace amk {
namespace {

// Rows looked at for one page before it is handed out short: filters that no index answers stay cheap, the cursor goes on.
constexpr std::size_t kMostScanned = 2000;
constexpr int kMostOfOneConfig = 10'000;

bool by_latency(ResultsSort sort) { return sort == ResultsSort::Fastest || sort == ResultsSort::Slowest; }
bool descending(ResultsSort sort) { return sort == ResultsSort::Newest || sort == ResultsSort::Slowest; }

bool before(ResultsSort sort, const Place& a, const Place& b) {
  if (a.key != b.key) return descending(sort) ? a.key > b.key : a.key < b.key;
  return a.id < b.id;
}

Place start_of(ResultsSort sort) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {descending(sort) ? kInfinity : -kInfinity, -1};
}

Result<std::vector<std::int64_t>> campaigns_of(sql::Connection& c, const ResultsQuery& q) {
  std::vector<std::int64_t> out;
  AMK_TRY(row, c.query("SELECT id FROM campaigns WHERE (?1 = '' OR workload = ?1) AND (?2 = '' OR gpu = ?2) AND (?3 = '' OR device_kind = ?3) "
                       "AND (?4 = '' OR regime = ?4) AND (?5 = 0 OR id = ?5)",
                       q.workload, q.gpu, q.device_kind, q.regime, q.campaign ? raw(*q.campaign) : 0));
  for (;;) {
    AMK_TRY(more, row.next());
    if (!more) return out;
    out.push_back(row.i64(0));
  }
}

Status collect(sql::Query& row, std::vector<Place>& out) {
  for (;;) {
    AMK_TRY(more, row.next());
    if (!more) return {};
    out.push_back({row.f64(0), row.i64(1)});
  }
}

// The next places of one campaign and outcome, from an index alone.
Status stream(sql::Connection& c, ResultsSort sort, std::int64_t campaign, int outcome, const Place& after, std::size_t count,
              std::vector<Place>& out) {
  const auto n = static_cast<std::int64_t>(count);
  // Keys of the time order are integers: they compare with a real exactly (SQLite compares int and real by value).
  switch (sort) {
    case ResultsSort::Newest: {
      AMK_TRY(row, c.query("SELECT end_seq, id FROM experiments WHERE campaign = ?1 AND outcome = ?2 AND end_seq < ?3 ORDER BY end_seq DESC LIMIT ?4",
                           campaign, outcome, after.key, n));
      return collect(row, out);
    }
    case ResultsSort::Oldest: {
      AMK_TRY(row, c.query("SELECT end_seq, id FROM experiments WHERE campaign = ?1 AND outcome = ?2 AND end_seq > ?3 ORDER BY end_seq LIMIT ?4",
                           campaign, outcome, after.key, n));
      return collect(row, out);
    }
    case ResultsSort::Fastest: {
      AMK_TRY(row, c.query("SELECT latency_us, id FROM experiments WHERE campaign = ?1 AND outcome = ?2 AND latency_us IS NOT NULL "
                           "AND latency_us >= ?3 AND (latency_us, id) > (?3, ?4) ORDER BY latency_us, id LIMIT ?5",
                           campaign, outcome, after.key, after.id, n));
      return collect(row, out);
    }
    case ResultsSort::Slowest: {
      // Ties go by id upwards in every order, so each latency's rows are sorted again below: take whole ties.
      AMK_TRY(row, c.query("SELECT latency_us, id FROM experiments WHERE campaign = ?1 AND outcome = ?2 AND latency_us IS NOT NULL "
                           "AND latency_us <= ?3 AND (latency_us < ?3 OR id > ?4) ORDER BY latency_us DESC, id LIMIT ?5",
                           campaign, outcome, after.key, after.id, n));
      return collect(row, out);
    }
  }
  return {};
}

// Up to `count` places after `after`, in order.
Result<std::vector<Place>> places(sql::Connection& c, const ResultsQuery& q, const Place& after, std::size_t count) {
  std::vector<Place> out;
  const bool any_campaign = q.workload.empty() && q.gpu.empty() && q.device_kind.empty() && q.regime.empty() && !q.campaign;
  if (!q.schedule_id.empty()) {
    AMK_TRY(row, c.query("SELECT CASE WHEN ?2 THEN e.latency_us ELSE e.end_seq END, e.id FROM configs k JOIN experiments e ON e.config = k.id "
                         "WHERE k.schedule_id = ?1 AND e.end_seq IS NOT NULL AND (NOT ?2 OR e.latency_us IS NOT NULL) LIMIT ?3",
                         q.schedule_id, by_latency(q.sort), kMostOfOneConfig));
    AMK_CHECK(collect(row, out));
    std::erase_if(out, [&](const Place& p) { return !before(q.sort, after, p); });
  } else if (any_campaign && q.outcomes.empty() && q.sort == ResultsSort::Newest) {
    AMK_TRY(row, c.query("SELECT end_seq, id FROM experiments WHERE end_seq IS NOT NULL AND end_seq < ?1 ORDER BY end_seq DESC LIMIT ?2", after.key,
                         static_cast<std::int64_t>(count)));
    AMK_CHECK(collect(row, out));
  } else if (any_campaign && q.outcomes.empty() && q.sort == ResultsSort::Oldest) {
    AMK_TRY(row, c.query("SELECT end_seq, id FROM experiments WHERE end_seq IS NOT NULL AND end_seq > ?1 ORDER BY end_seq LIMIT ?2", after.key,
                         static_cast<std::int64_t>(count)));
    AMK_CHECK(collect(row, out));
  } else {
    AMK_TRY(campaigns, campaigns_of(c, q));
    for (const std::int64_t campaign : campaigns)
      for (int outcome = 0; outcome < kOutcomes; ++outcome)
        if (q.outcomes.empty() || std::find(q.outcomes.begin(), q.outcomes.end(), static_cast<Outcome>(outcome)) != q.outcomes.end())
          AMK_CHECK(stream(c, q.sort, campaign, outcome, after, count, out));
  }
  std::sort(out.begin(), out.end(), [&](const Place& a, const Place& b) { return before(q.sort, a, b); });
  if (out.size() > count) out.resize(count);
  return out;
}

// Whether a row passes the filters that no index answers; looks at a few columns only, since most rows may not.
Result<bool> wanted(sql::Connection& c, const ResultsQuery& q, std::int64_t id, CampaignCache& campaigns) {
  if (q.latency_kind.empty() && q.loop.empty() && !q.since_wall_us && !q.until_wall_us && q.schedule_id.empty()) return true;
  AMK_TRY(row, c.query("SELECT latency_kind, loop, ended_wall_us, outcome, campaign FROM experiments WHERE id = ?1", id));
  AMK_TRY(found, row.next());
  if (!found) return false;
  const auto same = [](const std::string& filter, std::string_view value) { return filter.empty() || filter == value; };
  if (!same(q.latency_kind, row.view(0)) || !same(q.loop, row.view(1))) return false;
  if (q.since_wall_us && row.i64(2) < *q.since_wall_us) return false;
  if (q.until_wall_us && row.i64(2) >= *q.until_wall_us) return false;
  if (q.schedule_id.empty()) return true;
  // The way by config does not pass through the campaigns' filter.
  if (!q.outcomes.empty() && std::find(q.outcomes.begin(), q.outcomes.end(), static_cast<Outcome>(row.i64(3))) == q.outcomes.end()) return false;
  const CampaignId id_of_campaign{row.i64(4)};
  AMK_TRY(campaign, campaigns.get(c, id_of_campaign));
  const CampaignKey& key = campaign->key;
  return same(q.workload, key.workload) && same(q.gpu, key.gpu) && same(q.device_kind, key.device_kind) && same(q.regime, key.regime) &&
         (!q.campaign || *q.campaign == id_of_campaign);
}

Result<ResultsPage> own_page(sql::Connection& c, const ResultsQuery& q, Place after) {
  ResultsPage page;
  const auto limit = static_cast<std::size_t>(q.limit);
  CampaignCache campaigns;
  for (std::size_t scanned = 0; scanned < kMostScanned;) {
    // When few rows pass, more are asked for at a time.
    const std::size_t ask = std::max({limit - page.rows.size(), scanned, std::size_t{20}}) + 1;
    AMK_TRY(next, places(c, q, after, ask));
    for (const Place& place : next) {
      if (page.rows.size() == limit) {
        page.next_cursor = encode_cursor(q, after);
        return page;
      }
      AMK_TRY(take, wanted(c, q, place.id, campaigns));
      if (take) {
        AMK_TRY(experiment, rows::load_experiment(c, ExperimentId{place.id}));
        AMK_TRY(campaign, campaigns.get(c, experiment.campaign));
        page.rows.push_back(row_json(experiment, *campaign));
      }
      after = place;
      ++scanned;
    }
    if (next.size() < ask) return page;  // the end
  }
  page.next_cursor = encode_cursor(q, after);
  return page;
}

#define AMK_FOREIGN(key)                                                                                                   \
  "SELECT " key                                                                                                            \
  ", id, source, workload, gpu, regime, outcome, correctness, loop, latency_us, latency_kind, bound_us, pct_of_roofline, " \
  "schedule_id, kernel_id, description, measured_wall_us FROM foreign_rows "                                               \
  "WHERE (?1 = '' OR workload = ?1) AND (?2 = '' OR gpu = ?2) AND (?3 = '' OR regime = ?3) AND (?4 = '' OR schedule_id = ?4) AND "

Result<sql::Query> foreign_query(sql::Connection& c, const ResultsQuery& q, const Place& after) {
  const auto run = [&](sql::Sql sql) { return c.query(sql, q.workload, q.gpu, q.regime, q.schedule_id, after.key, after.id, q.limit + 1); };
  // In the time order the key is the id itself.
  switch (q.sort) {
    case ResultsSort::Newest:
      return run(AMK_FOREIGN("id") "id < ?5 AND ?6 IS NOT NULL ORDER BY id DESC LIMIT ?7");
    case ResultsSort::Oldest:
      return run(AMK_FOREIGN("id") "id > ?5 AND ?6 IS NOT NULL ORDER BY id LIMIT ?7");
    case ResultsSort::Fastest:
      return run(AMK_FOREIGN("latency_us") "latency_us >= ?5 AND (latency_us > ?5 OR id > ?6) ORDER BY latency_us, id LIMIT ?7");
    case ResultsSort::Slowest:
      return run(AMK_FOREIGN("latency_us") "latency_us <= ?5 AND (latency_us < ?5 OR id > ?6) ORDER BY latency_us DESC, id LIMIT ?7");
  }
  return fail(ErrorKind::Internal, "no such order");
}

Result<ResultsPage> foreign_page(sql::Connection& c, const ResultsQuery& q, Place after) {
  ResultsPage page;
  AMK_TRY(row, foreign_query(c, q, after));
  for (;;) {
    AMK_TRY(more, row.next());
    if (!more) return page;
    if (page.rows.size() == static_cast<std::size_t>(q.limit)) {
      page.next_cursor = encode_cursor(q, after);
      return page;
    }
    after = {row.f64(0), row.i64(1)};
    Json json = {{"foreign", true},    {"source", row.text(2)}, {"model", row.text(3)},
                 {"gpu", row.text(4)}, {"regime", row.text(5)}, {"correctness", row.text(7)}};
    const auto add = [&json](const char* key, const std::string& text) {
      if (!text.empty()) json[key] = text;
    };
    add("outcome", row.text(6));
    add("loop", row.text(8));
    if (const auto latency = row.opt_f64(9)) json["latency_us"] = *latency;
    add("latency_kind", row.text(10));
    if (const auto bound = row.opt_f64(11)) json["bound_us"] = *bound;
    if (const auto pct = row.opt_f64(12)) json["pct_of_roofline"] = *pct;
    add("schedule_id", row.text(13));
    add("kernel_id", row.text(14));
    add("description", row.text(15));
    if (row.i64(16) > 0) json["measured"] = utc_text(row.i64(16));
    page.rows.push_back(std::move(json));
  }
}

}  // namespace

Result<ResultsPage> Results::page(const ResultsQuery& query) const {
  if (query.limit < 1 || query.limit > kLargestPage) return bad_field("limit", query.limit, "an integer from 1 to 200");
  Place after = start_of(query.sort);
  if (!query.cursor.empty()) {
    AMK_TRY(place, decode_cursor(query, query.cursor));
    after = place;
  }
  return store_.read<ResultsPage>([&](sql::Connection& c) -> Result<ResultsPage> {
    if (query.campaign) AMK_CHECK(rows::load_campaign(c, *query.campaign));  // one that does not exist is a mistake; of it there are no rows
    return query.foreign ? foreign_page(c, query, after) : own_page(c, query, after);
  });
}

}  // namespace amk
