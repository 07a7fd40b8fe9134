#include "orchestrator/store/reserve.h"

#include <string>

#include "orchestrator/store/failpoint.h"
#include "orchestrator/store/filesystem.h"

namespace amk {

Status Reserve::take() {
  if (held_ || bytes_ <= 0) {
    held_ = true;
    return {};
  }
  AMK_CHECK(failpoint::check(Failpoint::ReserveCreate));
  std::error_code code;
  const bool exists = std::filesystem::symlink_status(path_, code).type() == std::filesystem::file_type::regular &&
                      static_cast<std::int64_t>(std::filesystem::file_size(path_, code)) >= bytes_ && !code;
  AMK_TRY(room, free_bytes(path_.parent_path()));
  const std::int64_t needed = exists ? bytes_ : 2 * bytes_;
  if (room < needed)
    return fail(ErrorKind::Unavailable,
                path_.parent_path().string() + " has " + std::to_string(room) + " bytes free; needed: " + std::to_string(needed),
                {{"reason", "disk-full"}, {"free_bytes", room}, {"needed_bytes", needed}});
  if (!exists) AMK_CHECK(reserve_file(path_, bytes_));
  held_ = true;
  return {};
}

bool Reserve::give_back() {
  if (!held_ || bytes_ <= 0) return false;
  if (!failpoint::check(Failpoint::ReserveRelease)) return false;
  held_ = false;
  std::error_code code;
  return std::filesystem::remove(path_, code);
}

}  // namespace amk
