#include "kernels/megakernel/tuned_configs.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>

#include "core/base/parse_json.h"
#include "core/schedule/config.h"

namespace amk {
namespace {

constexpr std::string_view kSchema = "amk.megakernel.tuned/1";

Result<std::string> text(const Json& entry, const char* field) {
  const auto found = entry.find(field);
  if (found != entry.end() && found->is_string() && !found->get_ref<const std::string&>().empty()) return found->get<std::string>();
  return bad_field(field, found == entry.end() ? Json(nullptr) : *found, "a text that is not empty");
}

Result<TunedConfig> parse_entry(const Json& entry) {
  if (!entry.is_object()) return bad_field("entry", entry, "an object");
  for (const auto& [key, value] : entry.items())
    if (key != "model" && key != "gpu" && key != "config" && key != "latency_us" && key != "evidence" && key != "context")
      return bad_field("entry", key, "model, gpu, config, latency_us, evidence, context");
  AMK_TRY(model, text(entry, "model"));
  AMK_TRY(gpu, text(entry, "gpu"));
  AMK_TRY(evidence, text(entry, "evidence"));
  const auto config = entry.find("config"), latency = entry.find("latency_us");
  AMK_CHECK(parse_schedule_config(config == entry.end() ? Json(nullptr) : *config));
  if (latency == entry.end() || !latency->is_number() || !std::isfinite(latency->get<double>()) || latency->get<double>() <= 0)
    return bad_field("latency_us", latency == entry.end() ? Json(nullptr) : *latency, "a number above 0");
  TunedConfig out{model, gpu, *config, latency->get<double>(), evidence};
  if (const auto context = entry.find("context"); context != entry.end()) {
    constexpr int kMost = 1 << 24;
    if (!context->is_number_integer() || *context < 1 || *context > kMost)
      return bad_field("context", *context, "a number of positions, 1 to 16777216");
    out.context = context->get<int>();
  }
  return out;
}

}  // namespace

Result<std::vector<TunedConfig>> load_tuned_configs(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(ErrorKind::Io, "cannot read the tuned configs " + path.string(), {{"path", path.string()}});
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  AMK_TRY(json, parse_json(bytes, path.string()));
  const auto entries = json.is_object() ? json.find("entries") : json.end();
  if (!json.is_object() || json.value("schema", Json(nullptr)) != kSchema || entries == json.end() || !entries->is_array())
    return fail(ErrorKind::Corrupt, path.string() + R"(: accepted is {"schema": ")" + std::string(kSchema) + R"(", "entries": […]})",
                {{"path", path.string()}});
  std::vector<TunedConfig> out;
  for (const Json& entry : *entries) {
    auto parsed = parse_entry(entry);
    if (!parsed)
      return fail(ErrorKind::Corrupt, path.string() + ", entry " + std::to_string(out.size()) + ": " + parsed.error().message, parsed.error().data);
    out.push_back(std::move(*parsed));
  }
  return out;
}

std::vector<const TunedConfig*> fastest_by_context(const std::vector<TunedConfig>& entries, const std::string& model, const std::string& gpu) {
  std::map<int, const TunedConfig*> fastest;
  for (const TunedConfig& e : entries) {
    if (e.model != model || e.gpu != gpu) continue;
    const TunedConfig*& best = fastest.try_emplace(e.context, &e).first->second;
    if (e.latency_us < best->latency_us) best = &e;
  }
  std::vector<const TunedConfig*> out;
  for (const auto& [context, entry] : fastest) out.push_back(entry);
  return out;
}

}  // namespace amk
