// Who may talk to the HTTP server: names that the browser may use for us, pages that may call us, and who knows the token. Pure, but for
// the token's file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "server/http/http_server.h"

namespace amk::http {

// ASCII letters only, whatever the locale.
std::string lower(std::string s);

struct AccessPolicy {
  std::vector<std::string> hosts = {"127.0.0.1", "localhost", "[::1]"};  // of Host and of Origin; any port
  std::string token;                                                     // bearer token; empty: none asked
};

// A reply that refuses: 400 for a missing or doubled Host, 403 for a Host or Origin outside the list (DNS rebinding, other pages), 401
// without the right token. `with_token` false: the path is public.
std::optional<Reply> refuse_access(const AccessPolicy& policy, const Request& head, bool with_token);

// The token in `path`, made (32 random bytes, hex) if the file is missing. The file must be ours and unreadable for others (0600).
Result<std::string> load_or_make_token(const std::filesystem::path& path);

// Plain-text reply.
Reply text_reply(int status, std::string text);

}  // namespace amk::http
