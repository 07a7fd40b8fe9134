// An exhaustively measured tuning space, replayed with its noise. File: tab-separated; parameter columns, then status ("ok" or what
// went wrong), then runtimes_ms (comma-separated samples). A combination without a row breaks a static rule of the recorded program.
// What a file has wrong is told by line and field (table.h).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "core/schedule/space.h"

namespace amk {

class RecordedSpace {
 public:
  static Result<RecordedSpace> load(const std::filesystem::path& file);

  const std::string& name() const { return name_; }
  const SearchSpace& space() const { return space_; }
  double optimum() const { return optimum_; }
  std::size_t rows() const { return medians_.size(); }
  const std::vector<Point>& points() const { return points_; }  // one a row, in the file's order

  // Median of all samples; empty for a failed configuration. `point` must have a row.
  std::optional<double> true_cost(const Point& point) const;
  // What one evaluation would have seen: the median of `samples` draws with replacement from the recorded ones.
  std::optional<double> noisy_cost(const Point& point, int samples, Rng& rng) const;
  const std::vector<std::vector<double>>& samples() const { return samples_; }

 private:
  class Rows;
  std::size_t row_of(const Point& point) const;

  std::string name_;
  SearchSpace space_;
  std::shared_ptr<const Rows> rows_;
  std::vector<std::vector<double>> samples_;
  std::vector<double> medians_;  // NaN: failed
  std::vector<Point> points_;
  double optimum_ = 0;
};

}  // namespace amk
