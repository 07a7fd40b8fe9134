#include "orchestrator/campaign/config_diff.h"

namespace amk {
namespace {

void compare(const std::string& path, const Json& a, const Json& b, Json& out) {
  if (a == b) return;
  if (!a.is_object() || !b.is_object()) {
    out[path] = {a, b};
    return;
  }
  const auto inside = [&path](const std::string& key) { return path.empty() ? key : path + "." + key; };
  for (const auto& [key, value] : a.items()) compare(inside(key), value, b.contains(key) ? b[key] : Json(nullptr), out);
  for (const auto& [key, value] : b.items())
    if (!a.contains(key)) compare(inside(key), nullptr, value, out);
}

}  // namespace

Json config_diff(const Json& a, const Json& b) {
  Json out = Json::object();
  compare("", a, b, out);
  return out;
}

}  // namespace amk
