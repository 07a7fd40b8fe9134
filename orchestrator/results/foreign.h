// One foreign point as a line of another file says it. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "orchestrator/results/results.h"

namespace amk {

struct ForeignLine {
  ForeignRow row;
  std::string outcome, loop, kernel_id, description;
  std::int64_t measured_wall_us = 0;
};

// `columns`: name -> position, from the header. `escaped`: the file is ours, whose fields are escaped.
Result<ForeignLine> foreign_from_tsv(std::string_view line, const std::map<std::string, std::size_t, std::less<>>& columns, bool escaped);
Result<ForeignLine> foreign_from_json(std::string_view line);

}  // namespace amk
