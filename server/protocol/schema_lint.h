// Rules that real clients impose on tool definitions, beyond the specification (docs/protocol.md says which client breaks how).
#pragma once

#include <string>
#include <vector>

#include "server/protocol/definition.h"

namespace amk::mcp {

// One sentence a finding, each naming the tool, resource or prompt; empty: clean.
std::vector<std::string> lint(const ServerDefinition& definition);

}  // namespace amk::mcp
