// Workspaces and schemas of these tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "orchestrator/store/schema.h"
#include "orchestrator/store/store.h"

namespace amk::test {

inline StoreOptions options_for(const std::filesystem::path& folder, const Schema* schema = nullptr, std::int64_t reserve_bytes = 0) {
  StoreOptions o;
  o.workspace = folder;
  o.reserve_bytes = reserve_bytes;
  o.schema = schema;
  return o;
}

// The current schema and a made-up later one: a column with a default.
inline Schema next_schema() {
  Schema schema = current_schema();
  schema.steps.push_back({schema.version() + 1, "ALTER TABLE campaigns ADD COLUMN note TEXT NOT NULL DEFAULT 'none'"});
  return schema;
}

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace amk::test
