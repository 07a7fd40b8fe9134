#include "core/base/error.h"

#include "core/base/text.h"

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
  // A hostile value may be huge or not UTF-8: shown shortened, with invalid bytes replaced. So may the name of a field that we do not know.
  constexpr std::size_t kShownLimit = 200;
  const auto shortened = [](std::string& text) {
    const std::string_view kept = cut_text(text, kShownLimit);
    if (kept.size() == text.size()) return false;
    text = std::string(kept) + "…";
    return true;
  };
  std::string shown = value.dump(-1, ' ', false, Json::error_handler_t::replace), name(field);
  const bool cut = shortened(shown);
  shortened(name);
  std::string message = name + " is " + shown + "; accepted: " + std::string(accepted);
  return fail(ErrorKind::InvalidArgument, std::move(message), {{"field", name}, {"value", cut ? Json(shown) : value}, {"accepted", accepted}});
}

Json to_json(const Error& error) { return {{"error", {{"kind", to_string(error.kind)}, {"message", error.message}, {"data", error.data}}}}; }

}  // namespace amk
