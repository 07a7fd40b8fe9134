#include "bench/replay/recorded_space.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>

#include "core/base/json.h"
#include "core/base/stats.h"

namespace amk {
namespace {

std::vector<std::string> split(const std::string& line, char separator) {
  std::vector<std::string> out;
  std::stringstream stream(line);
  for (std::string cell; std::getline(stream, cell, separator);) out.push_back(cell);
  if (!line.empty() && line.back() == separator) out.emplace_back();
  return out;
}

std::optional<double> number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// Numbers in ascending order; text in order of appearance.
Knob make_knob(const std::string& name, const std::vector<std::string>& column) {
  std::vector<std::string> distinct;
  for (const std::string& v : column)
    if (std::find(distinct.begin(), distinct.end(), v) == distinct.end()) distinct.push_back(v);
  const bool numeric = std::all_of(distinct.begin(), distinct.end(), [](const std::string& v) { return number(v).has_value(); });
  if (numeric) std::sort(distinct.begin(), distinct.end(), [](const std::string& a, const std::string& b) { return *number(a) < *number(b); });
  Knob knob;
  knob.name = name;
  knob.kind = !numeric ? KnobKind::Categorical : distinct.size() == 2 ? KnobKind::Boolean : KnobKind::Ordinal;
  for (const std::string& v : distinct) knob.choices.push_back(numeric ? Json(*number(v)) : Json(v));
  return knob;
}

std::size_t mixed_radix(const SearchSpace& space, const Point& point) {
  std::size_t index = 0;
  for (std::size_t k = 0; k < point.size(); ++k) index = index * space.knobs[k].choices.size() + point[k];
  return index;
}

}  // namespace

Result<RecordedSpace> RecordedSpace::load(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) return fail(ErrorKind::Io, file.string() + ": cannot be read");
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> header = split(line, '\t');
  if (header.size() < 3 || header[header.size() - 2] != "status" || header.back() != "runtimes_ms")
    return fail(ErrorKind::InvalidArgument, file.string() + ": the header is not parameters, status, runtimes_ms");
  const std::size_t parameters = header.size() - 2;

  std::vector<std::vector<std::string>> rows;
  while (std::getline(in, line)) {
    if (line.empty()) continue;
    rows.push_back(split(line, '\t'));
    if (rows.back().size() == header.size() - 1) rows.back().emplace_back();  // no samples
    if (rows.back().size() != header.size())
      return fail(ErrorKind::InvalidArgument,
                  file.string() + ": row " + std::to_string(rows.size()) + " has another number of columns than the header");
  }
  if (rows.empty()) return fail(ErrorKind::InvalidArgument, file.string() + ": no rows");

  RecordedSpace out;
  out.name_ = file.stem().string();
  std::size_t size = 1;
  for (std::size_t p = 0; p < parameters; ++p) {
    std::vector<std::string> column;
    for (const auto& row : rows) column.push_back(row[p]);
    out.space_.knobs.push_back(make_knob(header[p], column));
    size *= out.space_.knobs.back().choices.size();
    if (size > (std::size_t{1} << 31)) return fail(ErrorKind::InvalidArgument, file.string() + ": the product of choices exceeds 2^31");
  }
  auto table = std::make_shared<std::vector<std::int32_t>>(size, -1);
  out.optimum_ = std::numeric_limits<double>::infinity();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    Point point;
    for (std::size_t p = 0; p < parameters; ++p) {
      const Knob& knob = out.space_.knobs[p];
      const auto value = number(rows[r][p]);
      const Json cell = knob.kind == KnobKind::Categorical ? Json(rows[r][p]) : Json(*value);
      point.push_back(static_cast<std::uint16_t>(std::find(knob.choices.begin(), knob.choices.end(), cell) - knob.choices.begin()));
    }
    (*table)[mixed_radix(out.space_, point)] = static_cast<std::int32_t>(r);
    out.points_.push_back(point);
    std::vector<double> samples;
    if (rows[r][parameters] == "ok")
      for (const std::string& s : split(rows[r][parameters + 1], ','))
        if (const auto v = number(s); v && *v > 0) samples.push_back(*v);
    out.medians_.push_back(median(samples));
    if (!samples.empty()) out.optimum_ = std::min(out.optimum_, out.medians_.back());
    out.samples_.push_back(std::move(samples));
  }
  out.row_by_index_ = *table;
  // The constraint owns its table: the space may be moved.
  std::vector<std::size_t> radices;
  for (const Knob& knob : out.space_.knobs) radices.push_back(knob.choices.size());
  out.space_.constraints.push_back({"recorded", "the recorded program refuses this combination", [table, radices](const Point& point) {
                                      std::size_t index = 0;
                                      for (std::size_t k = 0; k < point.size(); ++k) index = index * radices[k] + point[k];
                                      return (*table)[index] >= 0;
                                    }});
  return out;
}

std::int32_t RecordedSpace::row_of(const Point& point) const { return row_by_index_[mixed_radix(space_, point)]; }

std::optional<double> RecordedSpace::true_cost(const Point& point) const {
  const double m = medians_[static_cast<std::size_t>(row_of(point))];
  return std::isnan(m) ? std::nullopt : std::optional(m);
}

std::optional<double> RecordedSpace::noisy_cost(const Point& point, int samples, Rng& rng) const {
  const std::vector<double>& all = samples_[static_cast<std::size_t>(row_of(point))];
  if (all.empty()) return std::nullopt;
  std::vector<double> drawn(static_cast<std::size_t>(samples));
  for (double& d : drawn) d = all[rng.below(all.size())];
  return median(drawn);
}

}  // namespace amk
