// Looks whether a workspace keeps every promise after its process was stopped at some instant.
#pragma once

#include <string>
#include <vector>

#include "orchestrator/store/store.h"
#include "tests/crash/ack_log.h"

namespace amk::test {

// Opens the store, lets it recover, and returns what is wrong; empty when nothing is. `acks`: everything ever acknowledged on it.
std::vector<std::string> audit(const StoreOptions& options, const std::vector<AckEntry>& acks, bool exports);

}  // namespace amk::test
