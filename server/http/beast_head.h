// What stands before a body: the request's head as we take it, the reply's head as we write it. Sees Boost: for the beast_*.cpp files only.
#pragma once

#include <optional>
#include <string>
#include <utility>  // Boost 1.74 uses std::exchange without it
#include <vector>

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/http/http_server.h"

namespace amk::http {

using Headers = std::vector<std::pair<std::string, std::string>>;
using BeastRequest = boost::beast::http::request<boost::beast::http::string_body>;

std::string lower(std::string_view s);
// Why a head that Beast's parser let pass is refused nevertheless; nothing if it is not.
std::optional<std::string> bad_head(const BeastRequest& head);
// Method, path, query and headers; the body stays behind.
Request request_of(const BeastRequest& head);
// The reply's head, without the empty line that ends it.
std::string head_text(int status, const Headers& headers);

}  // namespace amk::http
