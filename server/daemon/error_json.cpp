#include "server/daemon/error_json.h"

namespace amk::daemon {

ErrorKind error_kind_of(std::string_view name) {
  for (ErrorKind k : {ErrorKind::InvalidArgument, ErrorKind::NotFound, ErrorKind::Unsupported, ErrorKind::Corrupt, ErrorKind::Rejected,
                      ErrorKind::Conflict, ErrorKind::Unavailable, ErrorKind::Timeout, ErrorKind::Cancelled, ErrorKind::Io})
    if (to_string(k) == name) return k;
  return ErrorKind::Internal;
}

namespace {

std::string text_or(const Json& object, const char* key, const char* otherwise) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : otherwise;
}

}  // namespace

tl::unexpected<Error> error_of(const Json& error) {
  if (!error.is_object()) return fail(ErrorKind::Internal, "an error of unknown form");
  const auto data = error.find("data");
  return fail(error_kind_of(text_or(error, "kind", "internal")), text_or(error, "message", "no message"),
              data != error.end() && data->is_object() ? *data : Json::object());
}

}  // namespace amk::daemon
