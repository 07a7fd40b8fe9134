// A store for a test: in a folder of its own, without space kept aside.
#pragma once

#include "orchestrator/store/store.h"

namespace amk::test {

inline Result<std::unique_ptr<Store>> store_in(const std::filesystem::path& folder) {
  StoreOptions options;
  options.workspace = folder;
  options.reserve_bytes = 0;
  return Store::open(options);
}

}  // namespace amk::test
