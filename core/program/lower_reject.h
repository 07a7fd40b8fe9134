// The one form of a rejection by lowering. Internal to core/program.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.h"

namespace amk::lowering {

inline tl::unexpected<Error> reject(std::string_view rule, std::string message, Json witness = Json::object()) {
  Json data = {{"rule", rule}, {"message", message}, {"witness", std::move(witness)}};
  return fail(ErrorKind::Rejected, std::move(message), std::move(data));
}

}  // namespace amk::lowering
