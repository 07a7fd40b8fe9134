// Revisions of the Model Context Protocol and what differs between them.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace amk::mcp {

inline constexpr std::string_view kModernVersion = "2026-07-28";
inline constexpr std::string_view kNewestLegacyVersion = "2025-11-25";

// Newest first.
std::span<const std::string_view> legacy_versions();
// Modern and legacy, newest first: what server/discover and -32022 list.
std::span<const std::string_view> all_versions();
bool is_legacy_version(std::string_view version);

// The revision to answer an initialize with: the requested one if supported, else the newest legacy one.
std::string negotiate(std::string_view requested);

// A revision in use. Revisions are dates, so that order of text is order of time.
struct Revision {
  std::string version{kNewestLegacyVersion};

  bool modern() const { return version >= kModernVersion; }
  bool at_least(std::string_view v) const { return version >= v; }
  bool batches() const { return version == "2025-03-26"; }  // introduced there, removed in 2025-06-18
  bool annotations() const { return at_least("2025-03-26"); }
  bool progress_message() const { return at_least("2025-03-26"); }
  bool completions_capability() const { return at_least("2025-03-26"); }
  bool structured_output() const { return at_least("2025-06-18"); }  // outputSchema, structuredContent, title, resource links
};

// Keys of _meta (2026-07-28).
inline constexpr const char* kMetaProtocolVersion = "io.modelcontextprotocol/protocolVersion";
inline constexpr const char* kMetaClientInfo = "io.modelcontextprotocol/clientInfo";
inline constexpr const char* kMetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities";
inline constexpr const char* kMetaLogLevel = "io.modelcontextprotocol/logLevel";
inline constexpr const char* kMetaServerInfo = "io.modelcontextprotocol/serverInfo";
inline constexpr const char* kMetaSubscriptionId = "io.modelcontextprotocol/subscriptionId";

}  // namespace amk::mcp
