#include "core/base/memory_map.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

namespace amk {
namespace {

tl::unexpected<Error> io_error(const char* call, const std::filesystem::path& path, int code) {
  const ErrorKind kind = code == ENOENT || code == ENOTDIR ? ErrorKind::NotFound : ErrorKind::Io;
  return fail(kind, std::string(call) + " " + path.string() + ": " + std::strerror(code), {{"path", path.string()}, {"errno", code}});
}

struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

std::int64_t ns(const timespec& t) { return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec; }

FileIdentity identity(const struct stat& st) {
  return {static_cast<std::uint64_t>(st.st_dev), static_cast<std::uint64_t>(st.st_ino), static_cast<std::uint64_t>(st.st_size), ns(st.st_mtim),
          ns(st.st_ctim)};
}

// Mapped files whose faults are caught. A signal handler reads it: fixed in place, no locks.
struct Guard {
  std::atomic<std::uintptr_t> begin{0}, end{0};
  std::atomic<bool> taken{false};
};
constexpr std::size_t kGuards = 4096;  // files at once; those beyond are mapped without
Guard guards[kGuards];
std::atomic<std::uint64_t> read_failures{0};
struct sigaction bus_before {};

void on_bus_error(int number, siginfo_t* info, void* context) {
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Guard& g : guards) {
    if (info->si_code <= 0) break;  // sent by somebody: there is no address
    const std::uintptr_t begin = g.begin.load(std::memory_order_acquire), end = g.end.load(std::memory_order_acquire);
    if (at < begin || at >= end) continue;
    // Zeros from this page on: a cut file ends once. The bare system call: ThreadSanitizer would take the library's for a write to what others read.
    const std::uintptr_t page = at & ~(static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)) - 1);
    read_failures.fetch_add(1, std::memory_order_acq_rel);
    if (::syscall(SYS_mmap, page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != -1) return;
  }
  if ((bus_before.sa_flags & SA_SIGINFO) != 0 && bus_before.sa_sigaction != nullptr) return bus_before.sa_sigaction(number, info, context);
  ::signal(SIGBUS, SIG_DFL);  // on return the instruction faults again
}

int take_guard(const void* data, std::size_t size) {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &bus_before) == 0;
  }();
  if (!installed) return -1;
  for (std::size_t i = 0; i < kGuards; ++i) {
    if (guards[i].taken.load(std::memory_order_relaxed) || guards[i].taken.exchange(true)) continue;
    guards[i].begin.store(reinterpret_cast<std::uintptr_t>(data));  // first: a range that ends at 0 is empty, one that begins there is everything
    guards[i].end.store(reinterpret_cast<std::uintptr_t>(data) + size);
    return static_cast<int>(i);
  }
  return -1;
}

void leave_guard(int guard) {
  if (guard < 0) return;
  Guard& g = guards[guard];
  g.end.store(0);  // first: an empty range catches nothing
  g.begin.store(0);
  g.taken.store(false);
}

std::uint64_t read_number(const char* path) {
  std::ifstream in(path);
  std::uint64_t value = 0;
  return in >> value ? value : 0;  // "max" (no limit) reads as 0
}

}  // namespace

Result<MemoryMap> MemoryMap::open_file(const std::filesystem::path& path, FileIdentity* known_by) {
  // O_NONBLOCK: opening a FIFO would otherwise wait for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return io_error("open", path, errno);
  const Descriptor closer{fd};
  struct stat st {};
  if (::fstat(fd, &st) != 0) return io_error("fstat", path, errno);
  if (!S_ISREG(st.st_mode)) return fail(ErrorKind::InvalidArgument, path.string() + " is not a regular file", {{"path", path.string()}});
  if (known_by != nullptr) *known_by = identity(st);
  const auto size = static_cast<std::size_t>(st.st_size);
  if (size == 0) return MemoryMap();
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return io_error("mmap", path, errno);
  return MemoryMap(static_cast<std::byte*>(data), size, take_guard(data, size));
}

Result<FileIdentity> identity_of(const std::filesystem::path& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return io_error("stat", path, errno);
  return identity(st);
}

Result<MemoryMap> MemoryMap::anonymous(std::size_t bytes) {
  if (bytes == 0) return MemoryMap();
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    return fail(ErrorKind::Unavailable, "mmap of " + std::to_string(bytes) + " bytes of memory: " + std::strerror(errno), {{"bytes", bytes}});
  constexpr std::size_t kWorthHugePages = 8u << 20;
  if (bytes >= kWorthHugePages) (void)::madvise(data, bytes, MADV_HUGEPAGE);  // a hint: faults of 2 MB instead of 4 KB
  return MemoryMap(static_cast<std::byte*>(data), bytes, -1);
}

MemoryMap::MemoryMap(MemoryMap&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), guard_(std::exchange(other.guard_, -1)) {}

MemoryMap& MemoryMap::operator=(MemoryMap&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(guard_, other.guard_);
  return *this;
}

std::uint64_t mapped_read_failures() { return read_failures.load(std::memory_order_acquire); }

Status mapped_reads_succeeded_since(std::uint64_t before) {
  if (mapped_read_failures() == before) return {};
  return fail(ErrorKind::Io,
              "a file that is mapped could not be read: it was cut while it was in use, or its disk failed; what was computed is dropped");
}

MemoryMap::~MemoryMap() {
  leave_guard(guard_);
  if (data_ != nullptr) ::munmap(data_, size_);
}

std::uint64_t available_memory_bytes() {
  std::uint64_t available = 0;
  std::ifstream in("/proc/meminfo");
  for (std::string key; in >> key; in.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
    if (key == "MemAvailable:" && in >> available) {
      available *= 1024;
      break;
    }
  }
  const std::uint64_t limit = read_number("/sys/fs/cgroup/memory.max");
  const std::uint64_t used = read_number("/sys/fs/cgroup/memory.current");
  if (limit != 0 && limit > used) available = available == 0 ? limit - used : std::min(available, limit - used);
  return available;
}

}  // namespace amk
