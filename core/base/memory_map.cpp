#include "core/base/memory_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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

std::uint64_t read_number(const char* path) {
  std::ifstream in(path);
  std::uint64_t value = 0;
  return in >> value ? value : 0;  // "max" (no limit) reads as 0
}

}  // namespace

Result<MemoryMap> MemoryMap::open_file(const std::filesystem::path& path, FileIdentity* identity) {
  // O_NONBLOCK: opening a FIFO would otherwise wait for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return io_error("open", path, errno);
  const Descriptor closer{fd};
  struct stat st {};
  if (::fstat(fd, &st) != 0) return io_error("fstat", path, errno);
  if (!S_ISREG(st.st_mode)) return fail(ErrorKind::InvalidArgument, path.string() + " is not a regular file", {{"path", path.string()}});
  if (identity != nullptr)
    *identity = {static_cast<std::uint64_t>(st.st_dev), static_cast<std::uint64_t>(st.st_ino), static_cast<std::uint64_t>(st.st_size), ns(st.st_mtim),
                 ns(st.st_ctim)};
  const auto size = static_cast<std::size_t>(st.st_size);
  if (size == 0) return MemoryMap();
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return io_error("mmap", path, errno);
  return MemoryMap(static_cast<std::byte*>(data), size);
}

Result<MemoryMap> MemoryMap::anonymous(std::size_t bytes) {
  if (bytes == 0) return MemoryMap();
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    return fail(ErrorKind::Unavailable, "mmap of " + std::to_string(bytes) + " bytes of memory: " + std::strerror(errno), {{"bytes", bytes}});
  constexpr std::size_t kWorthHugePages = 8u << 20;
  if (bytes >= kWorthHugePages) (void)::madvise(data, bytes, MADV_HUGEPAGE);  // a hint: faults of 2 MB instead of 4 KB
  return MemoryMap(static_cast<std::byte*>(data), bytes);
}

MemoryMap::MemoryMap(MemoryMap&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MemoryMap& MemoryMap::operator=(MemoryMap&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MemoryMap::~MemoryMap() {
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
