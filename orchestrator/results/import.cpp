// import_results: files of this and other tools, line by line; a line that is wrong is refused by itself.
#include <errno.h>

#include <fstream>
#include <map>
#include <utility>

#include "core/base/hash.h"
#include "core/base/parse_json.h"
#include "orchestrator/results/foreign.h"
#include "orchestrator/results/formats.h"
#include "orchestrator/results/results.h"
#include "orchestrator/store/filesystem.h"
#include "orchestrator/store/sqlite.h"

namespace amk {
namespace {

constexpr std::size_t kLongestLine = 1 << 20;
constexpr std::size_t kBatch = 500;
constexpr std::size_t kRefusalsShown = 100;

using Columns = std::map<std::string, std::size_t, std::less<>>;

struct Stored {
  ForeignLine line;
  std::string config, hash;
};

std::string content_hash(const ForeignLine& line, const std::string& config) {
  const ForeignRow& r = line.row;
  const auto value = [](const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); };
  const Json content = {r.workload,
                        r.gpu,
                        r.regime,
                        r.correctness,
                        r.schedule_id,
                        r.latency_kind,
                        value(r.latency_us),
                        value(r.bound_us),
                        value(r.pct_of_roofline),
                        line.outcome,
                        line.loop,
                        line.kernel_id,
                        line.description,
                        line.measured_wall_us,
                        config};
  return hash128_hex(canonical_dump(content));
}

// A line at most kLongestLine long; a longer one is skipped to its end and reported as such.
enum class Got { Line, TooLong, End };
Got next_line(std::istream& in, std::string& line) {
  line.clear();
  bool too_long = false, any = false;
  for (int ch = in.get(); ch != std::char_traits<char>::eof(); ch = in.get()) {
    any = true;
    if (ch == '\n') break;
    if (line.size() >= kLongestLine)
      too_long = true;
    else
      line += static_cast<char>(ch);
  }
  if (!any) return Got::End;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return too_long ? Got::TooLong : Got::Line;
}

bool is_utf8(const std::string& text) {
  try {
    (void)Json(text).dump();  // strict: throws on anything else
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

Result<Columns> columns_of(const std::string& header) {
  Columns columns;
  std::size_t position = 0;
  for (std::size_t from = 0;; ++position) {
    const auto tab = header.find('\t', from);
    if (!columns.emplace(header.substr(from, tab == std::string::npos ? tab : tab - from), position).second)
      return fail(ErrorKind::InvalidArgument, "line 1 names a column twice");
    if (tab == std::string::npos) break;
    from = tab + 1;
  }
  for (const char* needed : {"model", "gpu", "correctness", "latency_us"})
    if (!columns.contains(needed))
      return fail(ErrorKind::InvalidArgument,
                  "neither a results.tsv (line 1 has no column \"" + std::string(needed) + "\") nor JSON lines (it does not begin with \"{\")",
                  {{"field", "file"}, {"accepted", "results.tsv with a header, or corpus.jsonl"}});
  return columns;
}

Result<std::int64_t> insert(Store& store, std::vector<Stored> batch, const std::string& source) {
  auto shared = std::make_shared<const std::vector<Stored>>(std::move(batch));
  return store.write<std::int64_t>("importing results", [shared, source, wall = store.clock().wall_us()](sql::Connection& c) -> Result<std::int64_t> {
    std::int64_t added = 0;
    for (const Stored& s : *shared) {
      const ForeignRow& r = s.line.row;
      AMK_TRY(
          n,
          c.run(
              "INSERT OR IGNORE INTO foreign_rows(content_hash, source, workload, gpu, regime, outcome, correctness, loop, latency_us, latency_kind, "
              "bound_us, pct_of_roofline, schedule_id, kernel_id, description, config, measured_wall_us, imported_wall_us) "
              "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
              s.hash, source, r.workload, r.gpu, r.regime, s.line.outcome, r.correctness, s.line.loop, r.latency_us, r.latency_kind, r.bound_us,
              r.pct_of_roofline, r.schedule_id, s.line.kernel_id, s.line.description, s.config, s.line.measured_wall_us, wall));
      added += n;
    }
    return added;
  });
}

}  // namespace

Result<ImportReport> import_results(Store& store, const std::filesystem::path& file, std::string_view source) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(file, code))
    return fail(ErrorKind::NotFound, file.string() + " is not a file", {{"field", "file"}, {"value", file.string()}});
  std::ifstream in(file, std::ios::binary);
  if (!in) return system_error("open", file, errno);
  ImportReport report;
  std::vector<Stored> batch;
  std::int64_t number = 0;
  std::optional<Columns> columns;
  bool json_lines = false, escaped = false, first = true;
  const auto refuse = [&](std::string why) {
    ++report.refused_count;
    if (report.refused.size() < kRefusalsShown) report.refused.push_back({number, std::move(why)});
  };
  const auto flush = [&]() -> Status {
    const auto count = static_cast<std::int64_t>(batch.size());
    if (count == 0) return {};
    AMK_TRY(added, insert(store, std::exchange(batch, {}), std::string(cut_text(source, 256))));
    report.rows += added;
    report.duplicates += count - added;
    return {};
  };
  std::string line;
  for (Got got = next_line(in, line); got != Got::End; got = next_line(in, line)) {
    ++number;
    if (got == Got::TooLong) {
      refuse("a line of more than 1 MiB");
      continue;
    }
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    if (!is_utf8(line)) {
      refuse("not UTF-8");
      continue;
    }
    if (first) {
      first = false;
      json_lines = line[line.find_first_not_of(' ')] == '{';
      if (!json_lines) {
        AMK_TRY(found, columns_of(line));
        columns = std::move(found);
        escaped = line + "\n" == tsv_header();
        continue;
      }
    }
    Result<ForeignLine> parsed = json_lines ? foreign_from_json(line) : foreign_from_tsv(line, *columns, escaped);
    if (!parsed) {
      refuse(parsed.error().message);
      continue;
    }
    Stored stored;
    if (parsed->row.config.is_object()) stored.config = canonical_dump(parsed->row.config);
    stored.hash = content_hash(*parsed, stored.config);
    stored.line = std::move(*parsed);
    batch.push_back(std::move(stored));
    if (batch.size() >= kBatch) AMK_CHECK(flush());
  }
  if (in.bad()) return system_error("read", file, EIO);
  AMK_CHECK(flush());
  return report;
}

Json to_json(const ImportReport& report) {
  Json refused = Json::array();
  for (const ImportReport::Refused& r : report.refused) refused.push_back({{"line", r.line}, {"why", r.why}});
  return {{"rows", report.rows}, {"duplicates", report.duplicates}, {"refused", std::move(refused)}, {"refused_count", report.refused_count}};
}

Result<std::vector<ForeignRow>> foreign_rows(const Store& store, std::string_view workload, std::string_view gpu, int limit) {
  return store.read<std::vector<ForeignRow>>([=](sql::Connection& c) -> Result<std::vector<ForeignRow>> {
    AMK_TRY(row,
            c.query("SELECT workload, gpu, regime, correctness, schedule_id, latency_kind, source, latency_us, bound_us, pct_of_roofline, config "
                    "FROM foreign_rows WHERE (?1 = '' OR workload = ?1) AND (?2 = '' OR gpu = ?2) ORDER BY id LIMIT ?3",
                    workload, gpu, limit));
    std::vector<ForeignRow> out;
    for (;;) {
      AMK_TRY(more, row.next());
      if (!more) return out;
      ForeignRow r{row.text(0), row.text(1),    row.text(2),    row.text(3),    row.text(4), row.text(5),
                   row.text(6), row.opt_f64(7), row.opt_f64(8), row.opt_f64(9), nullptr};
      if (!row.view(10).empty()) {
        AMK_TRY(config, parse_json(row.view(10), "stored foreign config"));
        r.config = std::move(config);
      }
      out.push_back(std::move(r));
    }
  });
}

}  // namespace amk
