#include "bench/replay/recorded/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <string_view>

#include "core/base/json.h"
#include "core/base/text.h"

namespace amk {
namespace {

constexpr std::string_view kStatus = "status", kRuntimes = "runtimes_ms", kOk = "ok";

// A field of a line, as errors name it.
class Place {
 public:
  Place(const std::filesystem::path& file, std::size_t line) : where_(file.string() + ", line " + std::to_string(line)) {}
  tl::unexpected<Error> wrong(std::string_view field, const Json& value, std::string_view accepted) const {
    return bad_field(where_ + ", " + std::string(field), value, accepted);
  }

 private:
  std::string where_;
};

Result<std::vector<std::string>> read_header(const Place& place, std::string_view line) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (line.starts_with(kMark)) line.remove_prefix(kMark.size());
  const std::vector<std::string_view> names = split(line, '\t');
  std::vector<std::string> header(names.begin(), names.end());
  if (header.size() < 3 || header[header.size() - 2] != kStatus || header.back() != kRuntimes)
    return place.wrong("header", header, "parameters, then status, then runtimes_ms, with tabs between them");
  header.resize(header.size() - 2);
  std::vector<std::string> sorted = header;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.front().empty()) return place.wrong("header", header, "a name for every parameter");
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    return place.wrong("header", *twice, "each parameter once");
  return header;
}

Result<std::vector<double>> read_runtimes(const Place& place, std::string_view cell) {
  std::vector<double> out;
  for (const std::string_view sample : split(cell, ',')) {
    const auto value = recorded_number(sample);
    if (!value || *value <= 0) return place.wrong(kRuntimes, cell, "of a row that is ok, positive numbers with commas between them");
    out.push_back(*value);
  }
  return out;
}

}  // namespace

std::optional<double> recorded_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

Result<RecordedTable> read_recorded_table(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string line;
  std::size_t number = 0;
  const auto next = [&] {
    if (!std::getline(in, line)) return false;
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    return true;
  };
  const bool any = next();
  if (!any && !in.eof()) return fail(ErrorKind::Io, file.string() + ": cannot be read");
  RecordedTable out;
  AMK_TRY(header, read_header(Place(file, 1), line));
  out.parameters = std::move(header);

  const std::size_t columns = out.parameters.size() + 2;
  std::map<std::string, std::size_t> seen;  // what went wrong, how often
  bool measured = false;
  while (next()) {
    if (line.empty()) continue;
    const Place place(file, number);
    std::vector<std::string_view> cells = split(line, '\t');
    // A row that failed may end at its status.
    if (cells.size() + 1 == columns && cells.back() != kOk) cells.emplace_back();
    if (cells.size() != columns) return place.wrong("columns", cells.size(), std::to_string(columns) + ", as the header has");
    const std::string status(cells[columns - 2]);
    if (status.empty()) return place.wrong(kStatus, status, "ok, or what went wrong");
    RecordedRow row{number, {}, {}};
    if (status == kOk) {
      AMK_TRY(runtimes, read_runtimes(place, cells.back()));
      row.runtimes_ms = std::move(runtimes);
      measured = true;
    } else if (seen.size() < 8 || seen.contains(status)) {
      ++seen[status];
    }
    row.values.assign(cells.begin(), cells.end() - 2);
    out.rows.push_back(std::move(row));
  }
  if (in.bad()) return fail(ErrorKind::Io, file.string() + ": cannot be read to its end");
  if (out.rows.empty()) return fail(ErrorKind::InvalidArgument, file.string() + ": the header is its only line; a space has at least one row");
  if (!measured) return bad_field(file.string() + ", status", seen, "ok in at least one row: without it there is no optimum");
  return out;
}

}  // namespace amk
