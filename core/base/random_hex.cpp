#include "core/base/random_hex.h"

#include <errno.h>
#include <sys/random.h>

#include <cstring>
#include <vector>

namespace amk {

Result<std::string> random_hex(int bytes) {
  std::vector<unsigned char> raw(static_cast<std::size_t>(bytes));
  std::size_t have = 0;
  while (have < raw.size()) {
    const ssize_t n = ::getrandom(raw.data() + have, raw.size() - have, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(ErrorKind::Io, std::string("getrandom: ") + std::strerror(errno));
    have += static_cast<std::size_t>(n);
  }
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (unsigned char b : raw) {
    out += kHex[b >> 4];
    out += kHex[b & 15];
  }
  return out;
}

}  // namespace amk
