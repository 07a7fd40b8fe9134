#include "server/dashboard/page_files.h"

#include <array>
#include <fstream>
#include <iterator>
#include <optional>

#include "server/http/access.h"

namespace amk::dashboard {
namespace fs = std::filesystem;
namespace {

struct File {
  const char *path, *name, *type;
};
constexpr std::array<File, 4> kFiles{{{"/dashboard", "index.html", "text/html; charset=utf-8"},
                                      {"/dashboard/", "index.html", "text/html; charset=utf-8"},
                                      {"/dashboard/app.js", "app.js", "text/javascript; charset=utf-8"},
                                      {"/dashboard/app.css", "app.css", "text/css; charset=utf-8"}}};

constexpr const char* kNotBuilt = R"(<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>amk dashboard: not built</title>
<h1>The page is not built</h1>
<p>amk was built on a machine without npm, or npm could not reach its registry. With Node.js 18 or newer and npm:</p>
<pre>server/dashboard/web/build build/release/dashboard</pre>
<p>in amk's source folder, then reload. The daemon need not be restarted.</p>
)";

std::optional<std::string> text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::string text((std::istreambuf_iterator<char>(in)), {});
  return in.bad() ? std::nullopt : std::optional(std::move(text));
}

}  // namespace

http::Reply page_file(const std::vector<fs::path>& folders, const std::string& path) {
  http::Reply reply = http::text_reply(404, "the dashboard has no such file");
  for (const File& file : kFiles) {
    if (path != file.path) continue;
    std::optional<std::string> text;
    std::error_code ignored;
    for (const fs::path& folder : folders)
      if (!text && fs::is_regular_file(folder / "index.html", ignored)) text = text_of(folder / file.name);
    if (text)
      reply = {200, file.type, std::move(*text)};
    else if (file.name == std::string_view("index.html"))
      reply = {503, file.type, kNotBuilt};
  }
  // style-src has no inline styles: what scripts set through the style object is not one. Trusted types: no text can become markup.
  reply.headers.emplace_back("Content-Security-Policy",
                             "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
                             "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'");
  reply.headers.emplace_back("Referrer-Policy", "no-referrer");
  reply.headers.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
  reply.headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  return reply;
}

}  // namespace amk::dashboard
