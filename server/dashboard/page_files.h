// The page's own files: built by npm (server/dashboard/web/build) into a folder that may be missing. Stateless, thread-safe.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "server/http/http_server.h"

namespace amk::dashboard {

// /dashboard, /dashboard/app.js, /dashboard/app.css from the first of `folders` that holds index.html; without one, /dashboard says how to
// build the page (503) and the others are 404. Every reply forbids scripts, styles and connections but the server's own.
http::Reply page_file(const std::vector<std::filesystem::path>& folders, const std::string& path);

}  // namespace amk::dashboard
