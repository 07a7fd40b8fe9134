// Fake tools, resources and prompts that exercise every path of the protocol engine without any kernel.
#pragma once

#include <memory>

#include "server/protocol/definition.h"

namespace amk::testing {

// Tools: echo, slow, fails, throws, nonconforming, big, counter. The counter is one per returned definition.
mcp::ServerDefinition fake_definition();

}  // namespace amk::testing
