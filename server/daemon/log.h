// The daemon's log: workspace/logs/daemon.log, rotated (5 MB, 3 files). Thread-safe. Before open_log(), and in programs without one, lines
// go to stderr.
#pragma once

#include <filesystem>
#include <string_view>

#include "core/base/error.h"

namespace amk::daemon {

Status open_log(const std::filesystem::path& folder);
// level: "debug", "info", "warning", "error".
void log_line(std::string_view level, std::string_view line);

}  // namespace amk::daemon
