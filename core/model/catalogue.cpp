#include "core/model/catalogue.h"

#include <algorithm>
#include <system_error>

#include "core/base/parse_json.h"
#include "core/model/config_fields.h"
#include "core/model/import.h"
#include "core/model/shards.h"

namespace amk {

namespace fs = std::filesystem;

bool is_catalogue_name(std::string_view name) {
  if (name.empty() || name.size() > 100 || name.front() == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  });
}

Result<CatalogueEntry> read_catalogue_entry(const fs::path& folder, std::string_view name) {
  if (!is_catalogue_name(name)) return bad_field("model", std::string(name), "a catalogue name");
  const fs::path path = folder / (std::string(name) + ".json");
  AMK_TRY(text, read_text_file(path, 1u << 20));
  AMK_TRY(record, parse_json(text, path.string()));
  if (!record.is_object()) return bad_field(path.string(), record, "a JSON object");
  for (const auto& [key, value] : record.items())
    if (key != "source" && key != "seed" && key != "config") return bad_field(path.string() + ": " + key, value, "source, seed, config");
  const auto seed = record.find("seed");
  if (seed == record.end() || !seed->is_number_unsigned())
    return bad_field(path.string() + ": seed", record.value("seed", Json()), "a non-negative integer");
  auto spec = import_config(record.value("config", Json()), name);
  if (!spec) {
    spec.error().message = path.string() + ": " + spec.error().message;
    return tl::unexpected<Error>(std::move(spec).error());
  }
  return CatalogueEntry{std::move(*spec), seed->get<std::uint64_t>()};
}

std::vector<std::string> list_catalogue(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string stem = it->path().stem().string();
    if (it->path().extension() == ".json" && is_catalogue_name(stem)) names.push_back(stem);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace amk
