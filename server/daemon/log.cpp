#include "server/daemon/log.h"

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <memory>
#include <mutex>

namespace amk::daemon {
namespace {

constexpr std::size_t kMaxBytes = 5u << 20;
constexpr std::size_t kFiles = 3;

std::mutex mutex;
std::shared_ptr<spdlog::logger> logger;

}  // namespace

Status open_log(const std::filesystem::path& folder) {
  try {
    auto opened = spdlog::rotating_logger_mt("amk", (folder / "daemon.log").string(), kMaxBytes, kFiles);
    opened->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %P %l %v");
    opened->set_level(spdlog::level::debug);
    opened->flush_on(spdlog::level::info);
    std::lock_guard lock(mutex);
    logger = std::move(opened);
    return {};
  } catch (const spdlog::spdlog_ex& e) {
    return fail(ErrorKind::Io, std::string("cannot open the log: ") + e.what());
  }
}

void log_line(std::string_view level, std::string_view line) {
  std::shared_ptr<spdlog::logger> to;
  {
    std::lock_guard lock(mutex);
    to = logger;
  }
  if (!to) {
    std::fprintf(stderr, "amk: %.*s: %.*s\n", static_cast<int>(level.size()), level.data(), static_cast<int>(line.size()), line.data());
    return;
  }
  to->log(spdlog::level::from_str(std::string(level)), line);
}

}  // namespace amk::daemon
