#include "server/protocol/random_id.h"

#include <cstdio>
#include <cstdlib>

#include "core/base/random_hex.h"

namespace amk {

std::string random_id(int bytes) {
  const auto id = random_hex(bytes);
  if (id) return *id;
  // Ids guard sessions: better no program than guessable ones. Cannot happen on kernels with getrandom.
  std::fprintf(stderr, "%s\n", id.error().message.c_str());
  std::abort();
}

}  // namespace amk
