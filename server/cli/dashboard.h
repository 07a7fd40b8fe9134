// `amk dashboard`: the address of the page, opened on request.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/error.h"

namespace amk::cli {

struct DashboardOptions {
  int port = 0;       // 0: any free one. A daemon that serves HTTP already keeps its address
  bool open = false;  // in the desktop's browser
};

// {"url", "opened"}: the page's address with the token in its fragment, which browsers send to no server. Starts the workspace's daemon if
// none runs, and asks it to serve HTTP on loopback.
Result<Json> dashboard(const std::filesystem::path& workspace, const DashboardOptions& options);

}  // namespace amk::cli
