// The long-running verbs: daemon and MCP over stdio.
#pragma once

#include <filesystem>
#include <string>

namespace amk::cli {

// `http`: also MCP over HTTP at this address ("127.0.0.1:0"), with the bearer token of workspace/http-token; empty: the socket only.
// The address that was bound is written to workspace/http.json and to stderr.
int serve_daemon(const std::filesystem::path& workspace, double idle_exit_s, const std::string& http);
// The shim; with no_daemon the application itself answers on stdio.
int serve_stdio(const std::filesystem::path& workspace, bool no_daemon, int stdout_fd);

}  // namespace amk::cli
