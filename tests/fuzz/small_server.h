// A server with one of everything, whose handlers return at once: for targets that are about the protocol around them.
#pragma once

#include "server/protocol/definition.h"

namespace amk::fuzz {

mcp::ServerDefinition small_definition();

}  // namespace amk::fuzz
