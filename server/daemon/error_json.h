// Errors back from the form in which they leave a program (core/base/error.h, to_json). Pure.
#pragma once

#include "core/base/error.h"

namespace amk::daemon {

// By its name; what has none is Internal.
ErrorKind error_kind_of(std::string_view name);

// From {"kind", "message", "data"}; an unknown kind is Internal.
tl::unexpected<Error> error_of(const Json& error);

}  // namespace amk::daemon
