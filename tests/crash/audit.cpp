#include "tests/crash/audit.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "orchestrator/campaign/campaign.h"
#include "orchestrator/campaign/rows.h"
#include "orchestrator/results/results.h"
#include "orchestrator/store/job_records.h"
#include "orchestrator/store/sqlite.h"

namespace amk::test {
namespace {

class Auditor {
 public:
  Auditor(Store& store, CampaignService& service) : store_(store), service_(service) {}

  void acknowledged(const std::vector<AckEntry>& acks) {
    const auto read = store_.read<bool>([&](sql::Connection& c) -> Result<bool> {
      for (const AckEntry& a : acks) {
        const std::string what = "acknowledged " + std::to_string(static_cast<int>(a.kind)) + " " + a.key + " e" + std::to_string(a.experiment);
        switch (a.kind) {
          case Ack::Begun:
          case Ack::Queued: {
            AMK_TRY(id, c.value_i64("SELECT id FROM experiments WHERE campaign = ?1 AND idempotency_key = ?2", a.campaign, a.key));
            if (!id)
              wrong(what + " is lost");
            else if (*id != a.experiment)
              wrong(what + " has another id");
            break;
          }
          case Ack::Ended: {
            AMK_TRY(row, c.query("SELECT outcome, ifnull(latency_us, -1) FROM experiments WHERE id = ?1 AND state = 2", a.experiment));
            AMK_TRY(found, row.next());
            if (!found)
              wrong(what + ": its end is lost");
            else if (row.i64(0) != a.outcome || row.f64(1) != a.latency_us)
              wrong(what + ": its end changed");
            break;
          }
          case Ack::Recorded:
          case Ack::Claimed: {
            AMK_TRY(n, c.value_i64("SELECT count(*) FROM claims WHERE campaign = ?1 AND idempotency_key = ?2 AND ifnull(experiment, 0) = ?3",
                                   a.campaign, a.key, a.experiment));
            if (n != 1) wrong(what + " is there " + std::to_string(n.value_or(0)) + " times");
            break;
          }
          case Ack::Job: {
            AMK_TRY(n, c.value_i64("SELECT count(*) FROM jobs WHERE job_id = ?1 AND final = 1", a.key));
            if (n != 1) wrong(what + ": its result is lost");
            break;
          }
        }
      }
      return true;
    });
    if (!read) wrong("reading acknowledged rows: " + read.error().message);
  }

  void consistent() {
    const auto read = store_.read<std::vector<std::int64_t>>([&](sql::Connection& c) -> Result<std::vector<std::int64_t>> {
      AMK_TRY(integrity, c.pragma("integrity_check(3)"));
      if (integrity != "ok") wrong("integrity_check: " + integrity);
      AMK_TRY(foreign, c.pragma("foreign_key_check"));
      if (!foreign.empty()) wrong("foreign_key_check: " + foreign);
      const auto none = [&](const char* what, Result<std::optional<std::int64_t>> count) {
        if (!count)
          wrong(count.error().message);
        else if (count->value_or(0) != 0)
          wrong(std::to_string(**count) + " " + what);
      };
      none("verdicts back two experiments",
           c.value_i64("SELECT count(*) FROM (SELECT verdict FROM experiments WHERE verdict IS NOT NULL GROUP BY verdict HAVING count(*) > 1)"));
      none("experiments rest on verdicts not marked used", c.value_i64("SELECT count(*) FROM experiments e JOIN verdicts v ON v.id = e.verdict WHERE "
                                                                       "v.used = 0 OR v.campaign <> e.campaign OR v.config <> e.config"));
      none("verdicts marked used back nothing",
           c.value_i64("SELECT count(*) FROM verdicts v WHERE v.used = 1 AND NOT EXISTS (SELECT 1 FROM experiments e WHERE e.verdict = v.id)"));
      none("gaps in a campaign's numbering",
           c.value_i64("SELECT count(*) FROM (SELECT campaign, max(seq) AS m, count(*) AS n FROM experiments GROUP BY campaign) WHERE m <> n"));
      none("experiments still running that nobody runs", c.value_i64("SELECT count(*) FROM experiments WHERE state = 1"));
      none("kept ones that are not 1% faster than the one before",
           c.value_i64("SELECT count(*) FROM (SELECT latency_us AS us, lag(latency_us) OVER (PARTITION BY campaign ORDER BY end_seq) AS before "
                       "FROM experiments WHERE outcome = 0) WHERE before IS NOT NULL AND before / us < 1.0099999"));
      std::vector<std::int64_t> ids;
      AMK_TRY(row, c.query("SELECT id FROM campaigns"));
      for (;;) {
        AMK_TRY(more, row.next());
        if (!more) return ids;
        ids.push_back(row.i64(0));
      }
    });
    if (!read) return wrong("reading the store: " + read.error().message);
    for (const std::int64_t id : *read)
      if (const Status same = service_.check(CampaignId{id}); !same) wrong(same.error().message);
  }

  void exported() {
    ResultFiles files(store_);
    if (const Status caught_up = files.catch_up(); !caught_up) return wrong("results.tsv: " + caught_up.error().message);
    const auto expected_path = store_.workspace() / "expected.tsv";
    ResultsQuery all;
    all.sort = ResultsSort::Oldest;
    const auto rows = Results(store_).export_to(expected_path, Results::Format::Tsv, all);
    if (!rows) return wrong("export: " + rows.error().message);
    if (slurp(files.tsv_path()) != slurp(expected_path)) wrong("results.tsv is not what the store holds");
    const std::string corpus = slurp(files.corpus_path());
    const auto kept = store_.read<std::optional<std::int64_t>>(
        [](sql::Connection& c) { return c.value_i64("SELECT count(*) FROM experiments WHERE outcome = 0"); });
    if (!kept || **kept != std::count(corpus.begin(), corpus.end(), '\n')) wrong("corpus.jsonl does not hold every kept point once");
  }

  std::vector<std::string> take() { return std::move(wrong_); }
  void wrong(const std::string& what) { wrong_.push_back(what); }

 private:
  static std::string slurp(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  Store& store_;
  CampaignService& service_;
  std::vector<std::string> wrong_;
};

}  // namespace

std::vector<std::string> audit(const StoreOptions& options, const std::vector<AckEntry>& acks, bool exports) {
  auto store = Store::open(options);
  if (!store) return {"does not open: " + store.error().message};
  auto service = CampaignService::create(**store);
  if (!service) return {"campaigns do not open: " + service.error().message};
  Auditor auditor(**store, **service);
  auditor.acknowledged(acks);
  auditor.consistent();
  if (exports) auditor.exported();
  return auditor.take();
}

}  // namespace amk::test
