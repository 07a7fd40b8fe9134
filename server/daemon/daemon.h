// The workspace daemon: one per workspace, guarded by an OS-released lock; serves MCP on a Unix socket (0600, same user only).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "server/daemon/paths.h"
#include "server/protocol/server.h"

namespace amk::daemon {

struct DaemonOptions {
  std::string version = {};
  double idle_exit_s = 600;         // no client and not busy for this long: exit. 0: never
  std::function<bool()> busy = {};  // jobs running? may be empty
  int max_connections = 512;
  std::vector<std::string> keeps = {};  // files of the workspace without which nothing that is written arrives: it ends when one is gone or another's
  // Answers control requests beside the built-in ones (below), in the daemon's thread: must not block. May be empty.
  std::function<Result<Json>(const Json& request)> control = {};
  // Called when the daemon is about to exit, before the server goes: whatever else holds the server lets go of it here.
  std::function<void()> on_stopping = {};
  int ready_fd = -1;                        // take_ready_fd(): tells the starter when the socket accepts, or why not
  std::function<void()> on_listening = {};  // in the daemon's thread, after the socket accepts
};

enum class DaemonExit { Idle, Signal, Retired, WorkspaceGone, AlreadyRunning };

// Runs until idle, signalled (SIGTERM, SIGINT), retired or until its workspace (or what it keeps there) was deleted or moved, whatever runs then;
// AlreadyRunning at once if another daemon holds the lock. Blocks SIGTERM, SIGINT and SIGHUP in the calling thread: call it from main, before other
// threads exist, and build the server inside `make_server`, which runs only once the lock is ours.
Result<DaemonExit> run_daemon(const Paths& paths, const DaemonOptions& options,
                              const std::function<Result<std::shared_ptr<mcp::Server>>()>& make_server);

// How to start a daemon: argv[0] is an executable's path; it must end up in run_daemon for the same workspace. Three descriptors are
// set up for it (stdin /dev/null, stdout and stderr to workspace/logs/daemon.out); all others are closed, but for the ready pipe, whose
// number is passed as AMK_READY_FD in the environment.
struct Launch {
  std::vector<std::string> argv;
};
// The descriptor that AMK_READY_FD names, -1 if none; for DaemonOptions::ready_fd. Takes the variable away.
int take_ready_fd();
// {"/proc/self/exe" resolved, "serve", "--background", "--workspace", …}
Launch default_launch(const Paths& paths);

// A connected socket; starts the daemon if none answers (within `timeout_s`). A daemon of another build
// than launch's executable is replaced if it is neither busy nor serving anybody else.
Result<int> connect_or_start(const Paths& paths, const Launch& launch, double timeout_s = 10);
// Without starting: Unavailable if none answers.
Result<int> connect_only(const Paths& paths);

// Asks the running daemon of the workspace; Unavailable if there is none. Built in: {"info": true} gives {pid, version, build, clients,
// busy}; {"stop": true} ends it, unless it is busy (Conflict) and "force" is not true.
Result<Json> control(const Paths& paths, const Json& request);

// Names this build of the program: equal for equal executables.
std::string build_id();

}  // namespace amk::daemon
