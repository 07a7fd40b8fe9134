// Named shapes: config/models/<name>.json = {"source": "…", "seed": N, "config": {fields of a HuggingFace config.json}}.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/model/model_spec.h"

namespace amk {

struct CatalogueEntry {
  ModelSpec spec;
  std::uint64_t seed = 0;
};

// Letters, digits, '.', '_' and '-', not starting with '.': cannot name a file outside the folder.
bool is_catalogue_name(std::string_view name);
// NotFound if the folder has no such record.
Result<CatalogueEntry> read_catalogue_entry(const std::filesystem::path& folder, std::string_view name);
// Sorted. Empty if the folder cannot be read.
std::vector<std::string> list_catalogue(const std::filesystem::path& folder);

}  // namespace amk
