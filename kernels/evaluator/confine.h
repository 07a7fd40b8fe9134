// What a worker gives up before it runs anything: it needs the GPU and its two pipes, not the network, not other programs, not privileges.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <vector>

#include "core/base/error.h"

namespace amk {

// Of this process and all its threads, for good:
//   no core dumps (weights and activations would be in them); no new privileges; of root's capabilities only those that files and pinned memory need
//   descriptors but 0, 1, 2 and `keep` closed
//   files read-only, but for `writable` and what make_files_read_only() names (this thread and those that it starts: call it first)
//   socket() of any family but AF_UNIX and AF_NETLINK, io_uring, ptrace, reading or writing another process's memory, exec: EPERM
// A kernel without Landlock or seccomp leaves its line out. {"no_new_privileges", "capabilities_dropped", "files", "network", "why"?}: files
// "read-only" and network "refused", or "as before" and why.
Json confine_worker(std::initializer_list<int> keep, const std::vector<std::filesystem::path>& writable);

}  // namespace amk
