#include "orchestrator/results/foreign.h"

#include <charconv>
#include <cmath>

#include "core/base/parse_json.h"
#include "orchestrator/results/formats.h"

namespace amk {
namespace {

constexpr std::size_t kLongestText = 4096;

tl::unexpected<Error> no(std::string why) { return fail(ErrorKind::InvalidArgument, std::move(why)); }

Status plausible(const ForeignLine& line) {
  const ForeignRow& r = line.row;
  if (r.workload.empty()) return no("no model");
  if (r.gpu.empty()) return no("no gpu");
  if (r.correctness.empty()) return no("no correctness: a result without a verdict on it is not taken");
  if (r.latency_us && r.correctness != "PASS") return no("a latency with correctness " + r.correctness + "; accepted: PASS, or no latency");
  if (r.latency_us && !(*r.latency_us > 0)) return no("latency_us is not more than 0");
  if (r.bound_us && !(*r.bound_us > 0)) return no("bound_us is not more than 0");
  for (const std::string* text :
       {&r.workload, &r.gpu, &r.regime, &r.correctness, &r.schedule_id, &r.latency_kind, &line.outcome, &line.loop, &line.kernel_id})
    if (text->size() > kLongestText)
      return no("a field of " + std::to_string(text->size()) + " bytes; accepted: at most " + std::to_string(kLongestText));
  return {};
}

Result<std::optional<double>> number(std::string_view field, std::string_view text) {
  if (text.empty()) return std::nullopt;
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return no(std::string(field) + " is \"" + std::string(text.substr(0, 60)) + "\"; accepted: a number, or nothing");
  return std::optional(value);
}

// The outcome of another tool's tag, where it is one of the words known here.
std::string outcome_of(std::string_view tag) {
  if (tag == "baseline") return "kept";
  return outcome_from(tag) ? std::string(tag) : std::string();
}

// What both forms call alike.
template <class TextOf>
void read_texts(ForeignLine& line, TextOf text_of) {
  line.row.workload = text_of("model");
  line.row.gpu = text_of("gpu");
  line.row.regime = text_of("regime");
  line.row.correctness = text_of("correctness");
  line.row.schedule_id = text_of("schedule_id");
  line.row.latency_kind = text_of("latency_kind");
  line.loop = text_of("loop");
  line.kernel_id = text_of("kernel_id");
}

}  // namespace

Result<ForeignLine> foreign_from_tsv(std::string_view line, const std::map<std::string, std::size_t, std::less<>>& columns, bool escaped) {
  std::vector<std::string_view> fields;
  for (std::size_t from = 0;;) {
    const auto tab = line.find('\t', from);
    fields.push_back(line.substr(from, tab == std::string_view::npos ? tab : tab - from));
    if (tab == std::string_view::npos) break;
    from = tab + 1;
  }
  if (fields.size() != columns.size()) return no(std::to_string(fields.size()) + " columns; the header has " + std::to_string(columns.size()));
  const auto get = [&](std::string_view name) -> std::string {
    const auto found = columns.find(name);
    if (found == columns.end()) return {};
    return escaped ? unescape_tsv(fields[found->second]) : std::string(fields[found->second]);
  };
  ForeignLine out;
  read_texts(out, get);
  out.outcome = outcome_of(get("tag"));
  out.description = cut_text(get("description"), kLongestText);
  AMK_TRY(latency, number("latency_us", get("latency_us")));
  AMK_TRY(pct, number("pct_of_roofline", get("pct_of_roofline")));
  out.row.latency_us = latency;
  out.row.pct_of_roofline = pct;
  if (latency && pct && *pct > 0) out.row.bound_us = *latency * *pct / 100;
  AMK_CHECK(plausible(out));
  return out;
}

Result<ForeignLine> foreign_from_json(std::string_view line) {
  AMK_TRY(json, parse_json(line, "line", {.max_bytes = 1u << 20, .max_depth = 32}));
  if (!json.is_object()) return no("not a JSON object");
  std::string wrong;
  const auto text = [&](const char* key) -> std::string {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) return {};
    if (!found->is_string()) {
      wrong = std::string(key) + " is not a text";
      return {};
    }
    return found->get<std::string>();
  };
  const auto real = [&](const char* key) -> std::optional<double> {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null() || *found == "") return std::nullopt;
    if (!found->is_number()) {
      wrong = std::string(key) + " is not a number";
      return std::nullopt;
    }
    return found->get<double>();
  };
  ForeignLine out;
  read_texts(out, text);
  out.row.latency_us = real("latency_us");
  out.row.bound_us = real("bound_us");
  out.row.pct_of_roofline = real("pct_of_roofline");
  out.description = cut_text(text("notes"), kLongestText);
  if (const auto ts = real("ts"); ts && *ts > 0 && *ts < 1e11) out.measured_wall_us = static_cast<std::int64_t>(*ts * 1e6);
  // A corpus holds kept points only.
  out.outcome = outcome_of(json.contains("tag") ? text("tag") : "kept");
  if (const auto schedule = json.find("schedule"); schedule != json.end() && !schedule->is_null()) {
    if (!schedule->is_object())
      wrong = "schedule is not an object";
    else
      out.row.config = *schedule;
  }
  if (!wrong.empty()) return no(wrong);
  AMK_CHECK(plausible(out));
  return out;
}

}  // namespace amk
