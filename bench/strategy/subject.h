// The spaces whose suggestions are timed: those of amk's own workloads, a synthetic one, and recorded ones.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/schedule/space.h"

namespace amk {

struct Subject {
  std::string name;
  SearchSpace space;
  std::function<std::optional<double>(const Point&)> cost;  // of a valid point; none: it fails
};

// Megakernels, single instructions and GEMMs (forward, da, db; large and few rows; chunks; the mma path), and 23 knobs made up. What a point costs is
// made up, too: the time of a suggestion does not depend on what is true of a kernel.
Result<std::vector<Subject>> own_subjects();
// A recorded space, or all of a folder; costs are the recorded medians.
Result<std::vector<Subject>> recorded_subjects(const std::filesystem::path& path);

}  // namespace amk
