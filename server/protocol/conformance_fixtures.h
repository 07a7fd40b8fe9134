// Tools, resources and prompts with the names and texts that the official conformance suite asks for (@modelcontextprotocol/conformance).
// They are served only when asked for (--conformance-fixtures): no real client should see them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/protocol/definition.h"

namespace amk::mcp {

// Called by fixtures that change a list; set it to Server::list_changed once there is a server.
using AnnounceListChange = std::shared_ptr<std::function<void(const std::string& list)>>;

// Adds the fixtures to `definition`; returns the hook.
AnnounceListChange add_conformance_fixtures(ServerDefinition& definition);

}  // namespace amk::mcp
