#include "server/protocol/revisions.h"

#include <algorithm>
#include <array>

namespace amk::mcp {
namespace {

constexpr std::array<std::string_view, 5> kAll = {kModernVersion, kNewestLegacyVersion, "2025-06-18", "2025-03-26", "2024-11-05"};

}  // namespace

std::span<const std::string_view> all_versions() { return kAll; }
std::span<const std::string_view> legacy_versions() { return std::span(kAll).subspan(1); }

bool is_legacy_version(std::string_view version) {
  const auto versions = legacy_versions();
  return std::find(versions.begin(), versions.end(), version) != versions.end();
}

std::string negotiate(std::string_view requested) { return std::string(is_legacy_version(requested) ? requested : kNewestLegacyVersion); }

}  // namespace amk::mcp
