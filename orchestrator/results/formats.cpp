#include "orchestrator/results/formats.h"

#include <charconv>

#include "core/base/number_text.h"
#include "core/base/parse_json.h"
#include "orchestrator/campaign/json.h"

namespace amk {
namespace {

// To a spreadsheet that opens the file (OWASP, CSV injection).
bool is_formula(std::string_view field) {
  if (field.empty() || std::string_view("=+-@\t\r").find(field[0]) == std::string_view::npos) return false;
  double value = 0;
  const auto [end, code] = std::from_chars(field.data(), field.data() + field.size(), value);
  return code != std::errc() || end != field.data() + field.size();
}

}  // namespace

const std::vector<std::string_view>& tsv_columns() {
  static const std::vector<std::string_view> columns{
      "experiment",  "tag",       "loop",        "model",    "gpu",          "regime",     "correctness", "latency_us", "pct_of_roofline",
      "schedule_id", "kernel_id", "description", "campaign", "latency_kind", "verdict_id", "device",      "time"};
  return columns;
}

std::vector<std::string> tsv_fields(const Experiment& e, const CampaignInfo& campaign) {
  const std::string tag = e.reason == "baseline" ? "baseline" : std::string(e.outcome ? to_string(*e.outcome) : "");
  return {std::to_string(e.seq),
          tag,
          e.loop,
          campaign.key.workload,
          campaign.key.gpu,
          campaign.key.regime,
          e.correctness,
          e.latency_us ? shortest(*e.latency_us) : "",
          e.pct_of_roofline ? shortest(*e.pct_of_roofline) : "",
          e.schedule_id,
          e.kernel_id,
          e.description,
          to_string(e.campaign),
          e.latency_kind,
          e.verdict_id,
          e.device,
          utc_text(e.ended_wall_us)};
}

std::vector<std::string> tsv_fields(const Json& row) {
  const auto text = [&row](const char* key) -> std::string {
    const auto at = row.find(key);
    if (at == row.end() || at->is_null()) return "";
    if (at->is_string()) return at->get<std::string>();
    return at->is_number_float() ? shortest(at->get<double>()) : at->dump();
  };
  return {text("seq"),
          row.value("reason", "") == "baseline" ? "baseline" : text("outcome"),
          text("loop"),
          text("model"),
          text("gpu"),
          text("regime"),
          text("correctness"),
          text("latency_us"),
          text("pct_of_roofline"),
          text("schedule_id"),
          text("kernel_id"),
          text("description"),
          text("campaign"),
          text("latency_kind"),
          text("verdict_id"),
          text("device"),
          row.contains("ended") ? text("ended") : text("measured")};
}

std::string escape_tsv(std::string_view text) {
  std::string out;
  for (const char ch : text) {
    if (ch == '\t')
      out += "\\t";
    else if (ch == '\n')
      out += "\\n";
    else if (ch == '\r')
      out += "\\r";
    else if (ch == '\\')
      out += "\\\\";
    else if (ch == '\0')
      out += "\\0";
    else
      out += ch;
  }
  return out;
}

std::string unescape_tsv(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    switch (text[++i]) {
      case 't':
        out += '\t';
        break;
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case '0':
        out += '\0';
        break;
      case '\\':
        out += '\\';
        break;
      default:
        (out += '\\') += text[i];
    }
  }
  return out;
}

std::string tsv_line(const std::vector<std::string>& fields) {
  std::string out;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) out += '\t';
    out += escape_tsv(fields[i]);
  }
  return out += '\n';
}

std::string tsv_header() { return tsv_line({tsv_columns().begin(), tsv_columns().end()}); }

std::string csv_line(const std::vector<std::string>& fields) {
  std::string out;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) out += ',';
    const std::string field = (is_formula(fields[i]) ? "'" : "") + fields[i];
    if (field.find_first_of(",\"\r\n") == std::string::npos) {
      out += field;
      continue;
    }
    out += '"';
    for (const char ch : field) {
      if (ch == '"') out += '"';
      out += ch;
    }
    out += '"';
  }
  return out += "\r\n";
}

std::string corpus_line(const Experiment& e, const CampaignInfo& campaign) {
  const Json json = {{"schema_version", kCorpusSchemaVersion},
                     {"model", campaign.key.workload},
                     {"gpu", campaign.key.gpu},
                     {"regime", campaign.key.regime},
                     {"correctness", e.correctness},
                     {"latency_us", or_null(e.latency_us)},
                     {"latency_kind", e.latency_kind},
                     {"bound_us", or_null(e.bound_us)},
                     {"pct_of_roofline", or_null(e.pct_of_roofline)},
                     {"schedule", e.config},
                     {"schedule_id", e.schedule_id},
                     {"kernel_id", e.kernel_id},
                     {"device", e.device},
                     {"campaign", to_string(e.campaign)},
                     {"experiment", e.seq},
                     {"verdict_id", e.verdict_id},
                     {"notes", e.description},
                     {"ts", static_cast<double>(e.ended_wall_us) / 1e6}};
  return canonical_dump(json) + "\n";
}

}  // namespace amk
