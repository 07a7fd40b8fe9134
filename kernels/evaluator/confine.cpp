#include "kernels/evaluator/confine.h"

#include <dirent.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "kernels/evaluator/read_only_files.h"

namespace amk {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
constexpr std::uint32_t kOtherCalls = 0x40000000;  // x32's numbers start here
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
constexpr std::uint32_t kOtherCalls = 0xffffffff;
#else
constexpr std::uint32_t kArchitecture = 0;
constexpr std::uint32_t kOtherCalls = 0xffffffff;
#endif

// A list, not close_range(): that came with Linux 5.9.
void close_all_but(std::vector<int> keep) {
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return;
  keep.push_back(::dirfd(folder));
  std::vector<int> open;
  for (const dirent* entry = ::readdir(folder); entry != nullptr; entry = ::readdir(folder)) {
    char* end = nullptr;
    const long fd = std::strtol(entry->d_name, &end, 10);
    if (end != entry->d_name && *end == '\0') open.push_back(static_cast<int>(fd));
  }
  for (const int fd : open)
    if (std::find(keep.begin(), keep.end(), fd) == keep.end()) ::close(fd);
  ::closedir(folder);
}

// Files of other users in a container that runs as root, and pinned memory; nothing that reaches beyond this process.
bool drop_capabilities() {
  constexpr std::uint64_t kKept = 1ULL << CAP_CHOWN | 1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_DAC_READ_SEARCH | 1ULL << CAP_FOWNER |
                                  1ULL << CAP_IPC_LOCK | 1ULL << CAP_SYS_NICE | 1ULL << CAP_SYS_RESOURCE;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  for (int word = 0; word < 2; ++word) {
    const auto kept = static_cast<std::uint32_t>(kKept >> (32 * word));
    data[word].effective &= kept;
    data[word].permitted &= kept;
    data[word].inheritable = 0;
  }
  return ::syscall(SYS_capset, &header, data) == 0;
}

// Classic BPF over {nr, arch, instruction pointer, arguments}: seccomp(2).
std::vector<sock_filter> program() {
  const auto load = [](std::size_t offset) { return sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<std::uint32_t>(offset)}; };
  const auto answer = [](std::uint32_t what) { return sock_filter{BPF_RET | BPF_K, 0, 0, what}; };
  constexpr std::uint32_t kRefuse = SECCOMP_RET_ERRNO | (EPERM & SECCOMP_RET_DATA);
  // if (A == value) fall through to the next, else skip it.
  const auto if_equal = [](std::uint32_t value) { return sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, value}; };
  std::vector<sock_filter> p;
  p.push_back(load(offsetof(seccomp_data, arch)));
  p.push_back({BPF_JMP | BPF_JEQ | BPF_K, 1, 0, kArchitecture});
  p.push_back(answer(kRefuse));  // system calls of another architecture would have other numbers
  p.push_back(load(offsetof(seccomp_data, nr)));
  p.push_back({BPF_JMP | BPF_JGE | BPF_K, 0, 1, kOtherCalls});
  p.push_back(answer(kRefuse));
  for (const long call :
       {long{SYS_io_uring_setup}, long{SYS_ptrace}, long{SYS_process_vm_readv}, long{SYS_process_vm_writev}, long{SYS_execve}, long{SYS_execveat}}) {
    p.push_back(if_equal(static_cast<std::uint32_t>(call)));
    p.push_back(answer(kRefuse));
  }
  p.push_back({BPF_JMP | BPF_JEQ | BPF_K, 1, 0, static_cast<std::uint32_t>(SYS_socket)});
  p.push_back(answer(SECCOMP_RET_ALLOW));
  p.push_back(load(offsetof(seccomp_data, args)));  // the low half on little-endian machines; the kernel takes an int
  for (const int family : {AF_UNIX, AF_NETLINK}) {
    p.push_back(if_equal(static_cast<std::uint32_t>(family)));
    p.push_back(answer(SECCOMP_RET_ALLOW));
  }
  p.push_back(answer(kRefuse));
  return p;
}

// Empty: it holds for every thread.
std::string refuse_calls() {
  if (kArchitecture == 0) return "no filter for this architecture";
  std::vector<sock_filter> filter = program();
  const sock_fprog code{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &code) == 0) return {};
  return std::string("seccomp: ") + std::strerror(errno);
}

}  // namespace

Json confine_worker(std::initializer_list<int> keep, const std::vector<std::filesystem::path>& writable) {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  std::vector<int> kept(keep);
  kept.insert(kept.end(), {0, 1, 2});
  close_all_but(std::move(kept));
  Json done;
  done["capabilities_dropped"] = drop_capabilities();
  done["no_new_privileges"] = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
  const std::string files = make_files_read_only(writable), calls = refuse_calls();
  done["files"] = files.empty() ? "read-only" : "as before";
  done["network"] = calls.empty() ? "refused" : "as before";
  if (!files.empty() || !calls.empty()) done["why"] = files + (files.empty() || calls.empty() ? "" : "; ") + calls;
  return done;
}

}  // namespace amk
