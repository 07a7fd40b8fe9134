#include <charconv>

#include "core/base/parse_json.h"
#include "orchestrator/campaign/rows.h"

namespace amk::rows {
namespace {

struct VerdictKey {
  std::int64_t id = 0;
  std::string_view secret;
};

// "v<id>-<32 hex digits>"
std::optional<VerdictKey> parse_verdict_id(std::string_view text) {
  const auto dash = text.find('-');
  if (text.size() < 3 || text[0] != 'v' || dash == std::string_view::npos) return std::nullopt;
  VerdictKey key;
  const auto [end, code] = std::from_chars(text.data() + 1, text.data() + dash, key.id);
  if (code != std::errc() || end != text.data() + dash) return std::nullopt;
  key.secret = text.substr(dash + 1);
  return key;
}

// Takes as long for a near miss as for a far one.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

Result<StoredVerdict> read_verdict(const sql::Query& row) {
  StoredVerdict out;
  out.id = row.i64(0);
  out.campaign = CampaignId{row.i64(2)};
  out.config = row.i64(3);
  out.used = row.i64(4) != 0;
  const std::string what = "stored verdict v" + std::to_string(out.id);
  AMK_TRY(json, parse_json(row.view(5), what));
  AMK_TRY(config, parse_json(row.view(6), what));
  json["config"] = std::move(config);
  json["verdict_id"] = verdict_id_text(out.id, row.view(1));
  AMK_TRY(verdict, verdict_from_json(json));
  out.verdict = std::move(verdict);
  return out;
}

}  // namespace

std::string verdict_id_text(std::int64_t id, std::string_view secret) {
  std::string out = "v";
  out += std::to_string(id);
  out += '-';
  out += secret;
  return out;
}

Result<std::int64_t> insert_verdict(sql::Connection& c, CampaignId campaign, std::int64_t config, Verdict verdict, std::string_view secret, bool used,
                                    std::int64_t wall_us) {
  verdict.verdict_id.clear();
  verdict.config = Json::object();  // stored once, with the configs
  AMK_CHECK(c.run("INSERT INTO verdicts(secret, campaign, config, used, issued_wall_us, json) VALUES(?1, ?2, ?3, ?4, ?5, ?6)", secret, raw(campaign),
                  config, used, wall_us, canonical_dump(to_json(verdict))));
  return c.last_insert_id();
}

Result<std::optional<StoredVerdict>> find_verdict(sql::Connection& c, std::string_view verdict_id) {
  const auto key = parse_verdict_id(verdict_id);
  if (!key) return std::nullopt;
  AMK_TRY(
      row,
      c.query("SELECT v.id, v.secret, v.campaign, v.config, v.used, v.json, k.text FROM verdicts v JOIN configs k ON k.id = v.config WHERE v.id = ?1",
              key->id));
  AMK_TRY(found, row.next());
  if (!found || !same_secret(row.view(1), key->secret)) return std::nullopt;
  AMK_TRY(verdict, read_verdict(row));
  return std::optional(std::move(verdict));
}

Result<std::optional<StoredVerdict>> newest_unused_verdict(sql::Connection& c, CampaignId campaign, std::int64_t config) {
  AMK_TRY(row, c.query("SELECT v.id, v.secret, v.campaign, v.config, v.used, v.json, k.text FROM verdicts v JOIN configs k ON k.id = v.config "
                       "WHERE v.config = ?1 AND v.campaign = ?2 AND v.used = 0 ORDER BY v.id DESC LIMIT 1",
                       config, raw(campaign)));
  AMK_TRY(found, row.next());
  if (!found) return std::nullopt;
  AMK_TRY(verdict, read_verdict(row));
  return std::optional(std::move(verdict));
}

Result<std::optional<ExperimentId>> experiment_of_verdict(sql::Connection& c, const StoredVerdict& verdict) {
  AMK_TRY(row, c.query("SELECT id FROM experiments WHERE config = ?1 AND campaign = ?2 AND verdict = ?3 LIMIT 1", verdict.config,
                       raw(verdict.campaign), verdict.id));
  AMK_TRY(found, row.next());
  return found ? std::optional(ExperimentId{row.i64(0)}) : std::nullopt;
}

Status quarantine(sql::Connection& c, CampaignId campaign, std::int64_t config, std::int64_t verdict, std::string_view reason) {
  AMK_CHECK(
      c.run("INSERT OR IGNORE INTO quarantine(campaign, config, verdict, reason) VALUES(?1, ?2, ?3, ?4)", raw(campaign), config, verdict, reason));
  return {};
}

Status refuse_quarantined(sql::Connection& c, CampaignId campaign, std::int64_t config) {
  AMK_TRY(row,
          c.query("SELECT q.reason, v.id, v.secret FROM quarantine q JOIN verdicts v ON v.id = q.verdict WHERE q.campaign = ?1 AND q.config = ?2",
                  raw(campaign), config));
  AMK_TRY(found, row.next());
  if (!found) return {};
  return fail(ErrorKind::Rejected, "this config is quarantined: it came out faster than the physical floor, so it is not evaluated again",
              {{"reason", "quarantined"}, {"why", row.text(0)}, {"verdict_id", verdict_id_text(row.i64(1), row.view(2))}});
}

}  // namespace amk::rows
