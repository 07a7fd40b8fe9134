// Where the daemon of a workspace keeps its lock, socket and logs. Pure but for creating directories.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/error.h"

namespace amk::daemon {

struct Paths {
  std::filesystem::path workspace;  // absolute, symbolic links resolved
  std::filesystem::path lock;       // workspace/daemon.lock, held with flock while the daemon lives
  std::filesystem::path socket;     // workspace/daemon.sock, or a short path named by a hash when that is too long for sun_path
  std::filesystem::path logs;       // workspace/logs
};

// Creates the workspace (0700 if new), its logs folder and, when the socket has to live elsewhere, a private folder for it
// (where the lock says that the last daemon listened, else $XDG_RUNTIME_DIR/amk or /tmp/amk-<uid>, which must be ours and 0700: Unavailable
// otherwise). InvalidArgument names a file in the workspace that has a name of ours and is a link, a FIFO or a device.
Result<Paths> prepare_paths(const std::filesystem::path& workspace);

}  // namespace amk::daemon
