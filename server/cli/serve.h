// The long-running verbs: daemon and MCP over stdio.
#pragma once

#include <filesystem>
#include <string>

namespace amk::cli {

struct ServeOptions {
  double idle_exit_s = 600;
  std::string http;                  // ADDRESS:PORT; empty: no HTTP
  std::filesystem::path token_file;  // default workspace/http.token
  bool no_token = false;             // on loopback only
  bool conformance_fixtures = false;
  bool stop = false, force = false;  // ends the running daemon instead
};

// Prints {"url", "token_file"} once HTTP answers. With a daemon already running, that one is asked to serve HTTP.
int serve_daemon(const std::filesystem::path& workspace, const ServeOptions& options, int stdout_fd);
// The shim; with no_daemon the application itself answers on stdio.
int serve_stdio(const std::filesystem::path& workspace, bool no_daemon, int stdout_fd);

}  // namespace amk::cli
