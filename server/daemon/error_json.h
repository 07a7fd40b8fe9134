// Errors back from the form in which they leave a program (core/base/error.h, to_json). Pure.
#pragma once

#include "core/base/error.h"

namespace amk::daemon {

// From {"kind", "message", "data"}; an unknown kind is Internal.
tl::unexpected<Error> error_of(const Json& error);

}  // namespace amk::daemon
