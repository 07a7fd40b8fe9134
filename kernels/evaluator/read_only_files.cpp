#include "kernels/evaluator/read_only_files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace amk {
namespace {

// include/uapi/linux/landlock.h; the distribution's header may be older than the kernel.
constexpr std::uint64_t kTruncate = 1ULL << 14;           // from the third version
constexpr std::uint64_t kScopes = 1ULL << 0 | 1ULL << 1;  // abstract Unix sockets, signals: from the sixth
struct RulesetAttr {
  std::uint64_t handled_access_fs = 0, handled_access_net = 0, scoped = 0;
};

constexpr std::uint64_t kWrite = LANDLOCK_ACCESS_FS_WRITE_FILE;
constexpr std::uint64_t kChange = kWrite | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                  LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                                  LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;

class Ruleset {
 public:
  Ruleset(int version, std::uint64_t handled) : handled_(handled) {
    RulesetAttr attr;
    attr.handled_access_fs = handled;
    if (version >= 6) attr.scoped = kScopes;
    // The kernel takes an attribute of any length whose unknown part is zero.
    fd_ = static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0));
  }
  ~Ruleset() {
    if (fd_ >= 0) ::close(fd_);
  }
  Ruleset(const Ruleset&) = delete;
  Ruleset& operator=(const Ruleset&) = delete;

  bool made() const { return fd_ >= 0; }
  // What is not there needs no permission. False: the rule was refused.
  bool allow(const std::filesystem::path& path, std::uint64_t access) const {
    const int at = ::open(path.c_str(), O_PATH | O_CLOEXEC);
    if (at < 0) return errno == ENOENT || errno == ENXIO || errno == EACCES;
    struct stat kind {};
    // A file has no entries to make or remove.
    constexpr std::uint64_t kOfFiles = kWrite | kTruncate;
    if (::fstat(at, &kind) == 0 && !S_ISDIR(kind.st_mode)) access &= kOfFiles;
    const landlock_path_beneath_attr rule{access & handled_, at};
    const bool added = ::syscall(SYS_landlock_add_rule, fd_, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
    ::close(at);
    return added;
  }
  bool enforce() const { return ::syscall(SYS_landlock_restrict_self, fd_, 0) == 0; }

 private:
  std::uint64_t handled_;
  int fd_ = -1;
};

std::string problem(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

// Not /dev as a whole: root would have the disks with it.
bool is_cudas(std::string_view name) {
  for (const char* exact : {"null", "zero", "dxg"})
    if (name == exact) return true;
  for (const char* start : {"nvidia", "nvhost", "nvmap", "dri"})
    if (name.starts_with(start)) return true;
  return false;
}

}  // namespace

std::string make_files_read_only(const std::vector<std::filesystem::path>& writable) {
  const auto version = static_cast<int>(::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION));
  if (version < 1) return problem("Landlock");
  std::uint64_t handled = kChange;
  if (version >= 2) handled |= LANDLOCK_ACCESS_FS_REFER;
  if (version >= 3) handled |= kTruncate;
  const Ruleset rules(version, handled);
  if (!rules.made()) return problem("landlock_create_ruleset");
  for (const auto& folder : writable)
    if (!rules.allow(folder, handled)) return problem(("Landlock rule for " + folder.string()).c_str());
  if (!rules.allow("/dev/shm", handled) || !rules.allow("/proc/self", kWrite | kTruncate)) return problem("landlock_add_rule");
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", code))
    if (is_cudas(entry.path().filename().string()) && !rules.allow(entry.path(), kWrite | kTruncate)) return problem("landlock_add_rule");
  if (!rules.enforce()) return problem("landlock_restrict_self");
  return {};
}

}  // namespace amk
