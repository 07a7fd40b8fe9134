#include "bench/replay/recorded/recorded_space.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "bench/replay/recorded/table.h"
#include "core/base/json.h"
#include "core/base/stats.h"
#include "core/schedule/valid_points.h"

namespace amk {
namespace {

// One parameter: its choices, and which of them each row has.
struct Column {
  Knob knob;
  std::vector<std::uint16_t> choice;
};

// Numbers in ascending order, equal ones once however they are written; text in order of appearance.
Result<Column> make_column(const std::filesystem::path& file, const RecordedTable& table, std::size_t parameter) {
  std::unordered_map<std::string, std::size_t> place;  // of a text among the distinct ones
  std::vector<const std::string*> distinct;
  for (const RecordedRow& row : table.rows)
    if (place.try_emplace(row.values[parameter], distinct.size()).second) distinct.push_back(&row.values[parameter]);
  std::vector<double> numbers;
  for (const std::string* text : distinct)
    if (const auto v = recorded_number(*text)) numbers.push_back(*v);
  const bool numeric = numbers.size() == distinct.size();

  Column out;
  out.knob.name = table.parameters[parameter];
  std::vector<std::size_t> index(distinct.size());  // of a distinct text's choice
  if (numeric) {
    std::vector<double> sorted = numbers;
    std::sort(sorted.begin(), sorted.end());
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    for (std::size_t i = 0; i < index.size(); ++i)
      index[i] = static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), numbers[i]) - sorted.begin());
    for (const double v : sorted) out.knob.choices.emplace_back(v);
  } else {
    for (std::size_t i = 0; i < index.size(); ++i) index[i] = i;
    for (const std::string* text : distinct) out.knob.choices.emplace_back(*text);
  }
  const std::size_t choices = out.knob.choices.size();
  constexpr std::size_t kMostChoices = 1024;  // models keep a table of distances between any two
  if (choices > kMostChoices) return bad_field(file.string() + ", " + out.knob.name, choices, "at most 1024 different values of a parameter");
  out.knob.kind = !numeric ? KnobKind::Categorical : choices == 2 ? KnobKind::Boolean : KnobKind::Ordinal;
  for (const RecordedRow& row : table.rows) out.choice.push_back(static_cast<std::uint16_t>(index[place.at(row.values[parameter])]));
  return out;
}

std::string shown(const RecordedTable& table, const RecordedRow& row) {
  std::string out;
  for (std::size_t p = 0; p < row.values.size(); ++p) out += (p ? ", " : "") + table.parameters[p] + " " + row.values[p];
  return out;
}

}  // namespace

// Which row a point has, by its mixed-radix index: a plain table where it is not much larger than the rows are many, else a hash table.
class RecordedSpace::Rows {
 public:
  Rows(const SearchSpace& space, std::size_t rows) {
    for (const Knob& knob : space.knobs) radices_.push_back(knob.choices.size());
    constexpr double kDense = 256;
    if (space.size() <= 1e6 || space.size() <= kDense * static_cast<double>(rows)) dense_.assign(static_cast<std::size_t>(space.size()), -1);
  }
  std::int32_t at(const Point& point) const {
    const std::uint64_t i = index(point);
    if (!dense_.empty()) return dense_[i];
    const auto found = sparse_.find(i);
    return found == sparse_.end() ? -1 : found->second;
  }
  void put(const Point& point, std::int32_t row) {
    if (dense_.empty())
      sparse_[index(point)] = row;
    else
      dense_[index(point)] = row;
  }

 private:
  std::uint64_t index(const Point& point) const {
    std::uint64_t out = 0;
    for (std::size_t k = 0; k < point.size(); ++k) out = out * radices_[k] + point[k];
    return out;
  }
  std::vector<std::uint64_t> radices_;
  std::vector<std::int32_t> dense_;
  std::unordered_map<std::uint64_t, std::int32_t> sparse_;
};

Result<RecordedSpace> RecordedSpace::load(const std::filesystem::path& file) {
  AMK_TRY(table, read_recorded_table(file));
  RecordedSpace out;
  out.name_ = file.stem().string();
  std::vector<std::vector<std::uint16_t>> choices;
  for (std::size_t p = 0; p < table.parameters.size(); ++p) {
    AMK_TRY(column, make_column(file, table, p));
    out.space_.knobs.push_back(std::move(column.knob));
    choices.push_back(std::move(column.choice));
  }
  constexpr double kMostPoints = 9.2e18;  // an index of 63 bits
  if (out.space_.size() > kMostPoints) return bad_field(file.string() + ", product of the parameters' choices", out.space_.size(), "at most 2^63");
  auto rows = std::make_shared<Rows>(out.space_, table.rows.size());
  out.optimum_ = std::numeric_limits<double>::infinity();
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    RecordedRow& row = table.rows[r];
    Point point;
    for (const auto& column : choices) point.push_back(column[r]);
    // Whichever of two counted, the other's runtimes would be an optimum that no search can find.
    if (const std::int32_t before = rows->at(point); before >= 0)
      return bad_field(file.string() + ", line " + std::to_string(row.line) + ", parameters", shown(table, row),
                       "each combination once; this one stands in line " + std::to_string(table.rows[static_cast<std::size_t>(before)].line));
    rows->put(point, static_cast<std::int32_t>(r));
    out.points_.push_back(std::move(point));
    out.medians_.push_back(median(row.runtimes_ms));
    if (!row.runtimes_ms.empty()) out.optimum_ = std::min(out.optimum_, out.medians_.back());
    out.samples_.push_back(std::move(row.runtimes_ms));
  }
  out.rows_ = rows;
  // The constraint owns its table: the space may be moved.
  out.space_.constraints.push_back(
      {"recorded", "the recorded program refuses this combination", [rows](const Point& point) { return rows->at(point) >= 0; }});
  constexpr double kFew = 1.0 / 1024;
  if (static_cast<double>(table.rows.size()) < kFew * out.space_.size()) out.space_.valid = ValidPoints::listed(out.space_, out.points_);
  return out;
}

std::size_t RecordedSpace::row_of(const Point& point) const { return static_cast<std::size_t>(rows_->at(point)); }

std::optional<double> RecordedSpace::true_cost(const Point& point) const {
  const double m = medians_[row_of(point)];
  return std::isnan(m) ? std::nullopt : std::optional(m);
}

std::optional<double> RecordedSpace::noisy_cost(const Point& point, int samples, Rng& rng) const {
  const std::vector<double>& all = samples_[row_of(point)];
  if (all.empty()) return std::nullopt;
  std::vector<double> drawn(static_cast<std::size_t>(samples));
  for (double& d : drawn) d = all[rng.below(all.size())];
  return median(drawn);
}

}  // namespace amk
