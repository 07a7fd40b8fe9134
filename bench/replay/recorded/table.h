// The text of a recorded space: what stands in which line. Whatever is wrong is told by file, line and field.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace amk {

struct RecordedRow {
  std::size_t line = 0;             // in the file, from 1
  std::vector<std::string> values;  // one a parameter
  std::vector<double> runtimes_ms;  // empty: status is not "ok"
};

struct RecordedTable {
  std::vector<std::string> parameters;
  std::vector<RecordedRow> rows;  // at least one has runtimes
};

// Lines end in LF or CRLF; a byte order mark is skipped, empty lines are.
Result<RecordedTable> read_recorded_table(const std::filesystem::path& file);

// The whole of `text` as a finite number.
std::optional<double> recorded_number(std::string_view text);

}  // namespace amk
