// `amk mcp`: what an MCP client starts. Passes messages between stdio and the daemon, and holds no state but what it takes to
// survive the daemon: ids of unanswered requests and the client's handshake.
#pragma once

#include "server/daemon/daemon.h"

namespace amk::daemon {

// Takes descriptor 1 away: returns a private duplicate of stdout (close-on-exec) for protocol messages, and points 1 at stderr, so
// that nothing else can ever write there. Opens /dev/null for any of 0, 1, 2 that is closed. Call it first thing in main.
int take_stdout();

// Runs until stdin ends, SIGINT, SIGTERM or SIGHUP arrives, or the parent dies; then returns within 400 ms. Returns the exit code.
int run_shim(const Paths& paths, const Launch& launch, int stdin_fd, int stdout_fd);

}  // namespace amk::daemon
