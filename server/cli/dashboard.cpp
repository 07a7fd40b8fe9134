#include "server/cli/dashboard.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>

#include "core/base/json.h"
#include "server/daemon/daemon.h"
#include "server/http/access.h"

namespace amk::cli {
namespace {

// xdg-open ends at once; what it starts belongs to the desktop. False when there is none or it fails.
bool open_in_browser(const std::string& url) {
  const pid_t child = ::fork();
  if (child < 0) return false;
  if (child == 0) {
    const int null = ::open("/dev/null", O_RDWR);
    for (int fd : {0, 1, 2}) ::dup2(null, fd);
    ::execlp("xdg-open", "xdg-open", url.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

Result<Json> dashboard(const std::filesystem::path& workspace, const DashboardOptions& options) {
  if (options.port < 0 || options.port > 65535) return bad_field("--port", options.port, "0 (any free one) to 65535");
  AMK_TRY(paths, daemon::prepare_paths(workspace));
  AMK_TRY(connection, daemon::connect_or_start(paths, daemon::default_launch(paths)));
  // Held until HTTP answers: a daemon with a client does not leave.
  const auto where = daemon::control(paths, {{"http", "127.0.0.1:" + std::to_string(options.port)}});
  ::close(connection);
  if (!where) return tl::unexpected<Error>(where.error());
  std::string url = where->value("url", "");
  constexpr std::string_view kMcp = "/mcp";
  if (!url.ends_with(kMcp)) return fail(ErrorKind::Internal, "the daemon serves HTTP at an address that is not understood: " + url);
  url.resize(url.size() - kMcp.size());
  if (options.port != 0 && !url.ends_with(":" + std::to_string(options.port)))
    std::cerr << "amk: the daemon serves HTTP already, at " << url << "; amk serve --stop ends it\n";
  url += "/dashboard";
  const Json token_file = where->value("token_file", Json());
  if (token_file.is_string()) {
    AMK_TRY(token, http::load_or_make_token(token_file.get<std::string>()));
    url += "#token=" + token;
  }
  bool opened = false;
  if (options.open) {
    opened = open_in_browser(url);
    if (!opened) std::cerr << "amk: xdg-open cannot open a browser here; open the address by hand\n";
  }
  return Json{{"url", url}, {"opened", opened}};
}

}  // namespace amk::cli
