#include "orchestrator/store/schema.h"

namespace amk {
namespace {

// Enumerations are stored as the numbers of orchestrator/store/types.h: outcome 0 kept … 7 lost; state 0 queued, 1 running, 2 ended.
// Times are µs: *_wall_us since 1970 UTC for display, lease_until_us on the boot clock of one incarnation.
// A published step never changes: later needs become later steps.
constexpr const char* kVersion1 = R"sql(
CREATE TABLE meta(
  name TEXT PRIMARY KEY,
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- Each canonical config once. Two texts may share a schedule_id (it is a hash): equality is equality of text.
CREATE TABLE configs(
  id INTEGER PRIMARY KEY,
  schedule_id TEXT NOT NULL,
  text TEXT NOT NULL
) STRICT;
CREATE INDEX configs_schedule ON configs(schedule_id);

-- The counts are derived from the campaign's experiments, in the transaction that changes them.
CREATE TABLE campaigns(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  workload TEXT NOT NULL,
  gpu TEXT NOT NULL,
  device_kind TEXT NOT NULL,
  regime TEXT NOT NULL,
  policy TEXT NOT NULL,
  state INTEGER NOT NULL DEFAULT 0,
  done_reason TEXT NOT NULL DEFAULT '',
  revision INTEGER NOT NULL DEFAULT 1,
  changed INTEGER NOT NULL,                      -- order of last changes among campaigns
  created_wall_us INTEGER NOT NULL,
  last_seq INTEGER NOT NULL DEFAULT 0,
  queued INTEGER NOT NULL DEFAULT 0,
  running INTEGER NOT NULL DEFAULT 0,
  kept INTEGER NOT NULL DEFAULT 0,
  revert INTEGER NOT NULL DEFAULT 0,
  inconclusive INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0,
  crash INTEGER NOT NULL DEFAULT 0,
  timeout INTEGER NOT NULL DEFAULT 0,
  rejected INTEGER NOT NULL DEFAULT 0,
  lost INTEGER NOT NULL DEFAULT 0,
  quarantined INTEGER NOT NULL DEFAULT 0,
  claims INTEGER NOT NULL DEFAULT 0,
  non_keeps INTEGER NOT NULL DEFAULT 0,          -- since the last kept one, or since reopening
  reopened_after INTEGER NOT NULL DEFAULT 0,     -- end_seq at the last reopening
  spent_us INTEGER NOT NULL DEFAULT 0,           -- experiments' charged_us + unattributed_us
  unattributed_us INTEGER NOT NULL DEFAULT 0,
  UNIQUE(workload, gpu, device_kind, regime)
) STRICT;
CREATE INDEX campaigns_changed ON campaigns(changed);

CREATE TABLE experiments(
  id INTEGER PRIMARY KEY,
  campaign INTEGER NOT NULL REFERENCES campaigns(id),
  seq INTEGER NOT NULL,
  idempotency_key TEXT,
  state INTEGER NOT NULL,
  requeue INTEGER NOT NULL,                      -- 1: came from a queue and returns to it when its lease runs out
  generation INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0,
  incarnation INTEGER NOT NULL DEFAULT 0,
  lease_until_us INTEGER NOT NULL DEFAULT 0,
  config INTEGER NOT NULL REFERENCES configs(id),
  kernel_id TEXT NOT NULL,
  tag TEXT NOT NULL,
  loop TEXT NOT NULL,
  strategy TEXT NOT NULL,
  description TEXT NOT NULL,
  worker TEXT NOT NULL,
  begun_wall_us INTEGER NOT NULL DEFAULT 0,
  begun_boot_us INTEGER NOT NULL DEFAULT 0,
  end_seq INTEGER,                               -- order of ends in the whole store
  outcome INTEGER,
  reason TEXT NOT NULL DEFAULT '',
  correctness TEXT NOT NULL DEFAULT '',
  latency_us REAL,
  latency_kind TEXT NOT NULL DEFAULT '',
  bound_us REAL,
  pct_of_roofline REAL,
  quarantined INTEGER NOT NULL DEFAULT 0,
  device TEXT NOT NULL DEFAULT '',
  verdict INTEGER REFERENCES verdicts(id),
  ended_wall_us INTEGER NOT NULL DEFAULT 0,
  duration_us INTEGER NOT NULL DEFAULT 0,
  charged_us INTEGER NOT NULL DEFAULT 0,         -- this end's share of the campaign's spent time
  phases TEXT NOT NULL DEFAULT '',
  UNIQUE(campaign, seq),
  CHECK ((state = 2) = (outcome IS NOT NULL) AND (state = 2) = (end_seq IS NOT NULL)),
  CHECK (outcome IS NOT 0 OR (verdict IS NOT NULL AND latency_us IS NOT NULL AND correctness = 'PASS')),
  CHECK (latency_us IS NULL OR correctness = 'PASS')
) STRICT;
CREATE UNIQUE INDEX experiments_key ON experiments(campaign, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX experiments_end ON experiments(end_seq) WHERE end_seq IS NOT NULL;
CREATE INDEX experiments_outcome ON experiments(campaign, outcome, end_seq) WHERE end_seq IS NOT NULL;
CREATE INDEX experiments_latency ON experiments(campaign, outcome, latency_us, id) WHERE latency_us IS NOT NULL;
CREATE INDEX experiments_config ON experiments(config, campaign);
CREATE INDEX experiments_open ON experiments(state, campaign, seq) WHERE state < 2;

-- What the evaluator said. The id shown is "v<id>-<secret>": it can not be guessed, and is found without an index.
CREATE TABLE verdicts(
  id INTEGER PRIMARY KEY,
  secret TEXT NOT NULL,
  campaign INTEGER NOT NULL REFERENCES campaigns(id),
  config INTEGER NOT NULL REFERENCES configs(id),
  used INTEGER NOT NULL DEFAULT 0,               -- 1: an experiment rests on it; never twice
  issued_wall_us INTEGER NOT NULL,
  json TEXT NOT NULL                             -- without its config
) STRICT;
CREATE INDEX verdicts_config ON verdicts(config, campaign);

-- What agents typed. Never read to decide anything.
CREATE TABLE claims(
  id INTEGER PRIMARY KEY,
  campaign INTEGER NOT NULL REFERENCES campaigns(id),
  idempotency_key TEXT,
  request TEXT NOT NULL,
  experiment INTEGER REFERENCES experiments(id),  -- what it became, when a verdict backed it
  refused TEXT NOT NULL DEFAULT '',              -- why it was not taken, '' when it was
  reply TEXT NOT NULL,                           -- what a repeated call gets
  recorded_wall_us INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX claims_key ON claims(campaign, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX claims_campaign ON claims(campaign, id);

-- Reports that came after their lease had passed on: evidence, without effect.
CREATE TABLE stale_reports(
  id INTEGER PRIMARY KEY,
  experiment INTEGER NOT NULL REFERENCES experiments(id),
  generation INTEGER NOT NULL,
  current_generation INTEGER NOT NULL,
  report TEXT NOT NULL,
  received_wall_us INTEGER NOT NULL
) STRICT;
CREATE INDEX stale_reports_experiment ON stale_reports(experiment);

-- Configs that came out faster than physics allows.
CREATE TABLE quarantine(
  campaign INTEGER NOT NULL REFERENCES campaigns(id),
  config INTEGER NOT NULL REFERENCES configs(id),
  verdict INTEGER NOT NULL REFERENCES verdicts(id),
  reason TEXT NOT NULL,
  PRIMARY KEY(campaign, config)
) STRICT, WITHOUT ROWID;

CREATE TABLE foreign_rows(
  id INTEGER PRIMARY KEY,
  content_hash TEXT NOT NULL UNIQUE,
  source TEXT NOT NULL,
  workload TEXT NOT NULL,
  gpu TEXT NOT NULL,
  regime TEXT NOT NULL,
  outcome TEXT NOT NULL,
  correctness TEXT NOT NULL,
  loop TEXT NOT NULL,
  latency_us REAL,
  latency_kind TEXT NOT NULL,
  bound_us REAL,
  pct_of_roofline REAL,
  schedule_id TEXT NOT NULL,
  kernel_id TEXT NOT NULL,
  description TEXT NOT NULL,
  config TEXT NOT NULL,                          -- '' when the source had none
  measured_wall_us INTEGER NOT NULL,
  imported_wall_us INTEGER NOT NULL
) STRICT;
CREATE INDEX foreign_rows_workload ON foreign_rows(workload, gpu, latency_us);
CREATE INDEX foreign_rows_latency ON foreign_rows(latency_us) WHERE latency_us IS NOT NULL;

CREATE TABLE jobs(
  id INTEGER PRIMARY KEY,
  job_id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  request_key TEXT,
  final INTEGER NOT NULL,
  incarnation INTEGER NOT NULL,
  document TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX jobs_key ON jobs(kind, request_key) WHERE request_key IS NOT NULL;
)sql";

}  // namespace

const Schema& current_schema() {
  static const Schema schema{{{1, kVersion1}}};
  return schema;
}

}  // namespace amk
