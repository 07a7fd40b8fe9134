// The long-running verbs: daemon and MCP over stdio.
#pragma once

#include <filesystem>

namespace amk::cli {

int serve_daemon(const std::filesystem::path& workspace, double idle_exit_s);
// The shim; with no_daemon the application itself answers on stdio.
int serve_stdio(const std::filesystem::path& workspace, bool no_daemon, int stdout_fd);

}  // namespace amk::cli
