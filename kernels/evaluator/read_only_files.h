// Landlock (Linux 5.13): the file system becomes read-only for this process, but for named folders and the GPU's device files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace amk {

// Of the calling thread and of every thread and process that it starts from here, for good: nothing is created, written, cut, renamed or removed
// but below `writable`, in shared memory, in /proc/self, and in the device files that CUDA opens. Where the kernel has it (6.12), no signals to
// and no abstract Unix sockets of processes outside either. Needs no_new_privs. Empty when done, else why not; then nothing has changed.
std::string make_files_read_only(const std::vector<std::filesystem::path>& writable);

}  // namespace amk
