#include "server/protocol/random_id.h"

#include <errno.h>
#include <sys/random.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace amk {

std::string random_id(int bytes) {
  std::vector<unsigned char> raw(static_cast<std::size_t>(bytes));
  std::size_t have = 0;
  while (have < raw.size()) {
    const ssize_t n = ::getrandom(raw.data() + have, raw.size() - have, 0);
    if (n < 0 && errno != EINTR) {
      // Ids guard sessions: better no program than guessable ones. Cannot happen on kernels with getrandom.
      std::perror("getrandom");
      std::abort();
    }
    if (n > 0) have += static_cast<std::size_t>(n);
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
