// What becomes of an exception where nobody expects one: at the ends of threads and of tool calls.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace amk {

// Being out of memory or of threads is the machine's state, not a fault of ours, and worth a retry.
inline tl::unexpected<Error> unexpected_failure(const std::string& what, const std::exception& e) {
  const auto* system = dynamic_cast<const std::system_error*>(&e);
  if (dynamic_cast<const std::bad_alloc*>(&e) != nullptr ||
      (system != nullptr && (system->code() == std::errc::resource_unavailable_try_again || system->code() == std::errc::not_enough_memory)))
    return fail(ErrorKind::Unavailable,
                what + " ran out of memory or threads; try again when other work on this machine has ended, or with a smaller model");
  return fail(ErrorKind::Internal, what + " failed unexpectedly: " + e.what());
}

}  // namespace amk
