#include "core/base/error.h"

namespace amk {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::InvalidArgument:
      return "invalid_argument";
    case ErrorKind::NotFound:
      return "not_found";
    case ErrorKind::Unsupported:
      return "unsupported";
    case ErrorKind::Corrupt:
      return "corrupt";
    case ErrorKind::Rejected:
      return "rejected";
    case ErrorKind::Conflict:
      return "conflict";
    case ErrorKind::Unavailable:
      return "unavailable";
    case ErrorKind::Timeout:
      return "timeout";
    case ErrorKind::Cancelled:
      return "cancelled";
    case ErrorKind::Io:
      return "io";
    case ErrorKind::Internal:
      return "internal";
  }
  return "internal";
}

tl::unexpected<Error> bad_field(std::string_view field, const Json& value, std::string_view accepted) {
  // A hostile value may be huge or not UTF-8: shown shortened, with invalid bytes replaced.
  std::string shown = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr std::size_t kShownLimit = 200;
  const bool cut = shown.size() > kShownLimit;
  if (cut) {
    std::size_t end = kShownLimit;
    while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xC0) == 0x80) --end;
    shown.resize(end);
    shown += "…";
  }
  std::string message = std::string(field) + " is " + shown + "; accepted: " + std::string(accepted);
  return fail(ErrorKind::InvalidArgument, std::move(message), {{"field", field}, {"value", cut ? Json(shown) : value}, {"accepted", accepted}});
}

Json to_json(const Error& error) { return {{"error", {{"kind", to_string(error.kind)}, {"message", error.message}, {"data", error.data}}}}; }

}  // namespace amk
