#include "server/daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "server/daemon/connections.h"
#include "server/daemon/log.h"
#include "server/daemon/unix_socket.h"

namespace amk::daemon {
namespace {

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// What the starter waits for: one line, then the end of the pipe.
class Ready {
 public:
  explicit Ready(int fd) : fd_(fd) {}
  ~Ready() { say(""); }
  void say(const std::string& line) {
    if (fd_ < 0) return;
    const std::string text = line.empty() ? "" : line + "\n";
    [[maybe_unused]] const ssize_t n = ::write(fd_, text.data(), text.size());
    ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// A handler that ignores its stop token must not keep a daemon that was told to go: the store survives being cut off.
void exit_at_the_latest(std::chrono::seconds limit) {
  try {
    std::thread([limit] {
      std::this_thread::sleep_for(limit);
      log_line("error", "handlers did not stop in time; exiting anyway");
      ::_exit(1);
    }).detach();
  } catch (const std::exception&) {  // no thread to be had
    ::alarm(static_cast<unsigned>(limit.count()));
  }
}

constexpr std::chrono::seconds kWorkspaceLook{2};

// A yes or no of a control request: absent is no.
Result<bool> flag_of(const Json& request, const char* name) {
  const auto at = request.find(name);
  if (at == request.end()) return false;
  if (!at->is_boolean()) return bad_field(std::string("control.") + name, *at, "true, false");
  return at->get<bool>();
}

// Shorter than it was when the daemon began: a store that was cut. A transaction that is undone takes back no more than what it added.
bool was_cut(const std::filesystem::path& path, const struct stat& file) {
  struct stat there {};
  return path.extension() == ".sqlite" && ::lstat(path.c_str(), &there) == 0 && there.st_size < file.st_size;
}

// Whether a path still leads to the file that it led to. Only an answer counts, not a file system that gives none.
bool still_leads_to(const std::filesystem::path& path, const struct stat& file) {
  struct stat there {};
  if (::lstat(path.c_str(), &there) != 0) return errno != ENOENT && errno != ENOTDIR;
  return file.st_dev == there.st_dev && file.st_ino == there.st_ino;
}

}  // namespace

Result<DaemonExit> run_daemon(const Paths& paths, const DaemonOptions& options,
                              const std::function<Result<std::shared_ptr<mcp::Server>>()>& make_server) {
  Ready ready(options.ready_fd);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  for (int s : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, s);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const Fd lock(::open(paths.lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock.get() < 0) return os_error("open", paths.lock.string());
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return os_error("flock", paths.lock.string());
    ready.say("running");
    return DaemonExit::AlreadyRunning;
  }
  struct stat lock_file {
  }, socket_file{};
  if (::fstat(lock.get(), &lock_file) != 0) return os_error("fstat", paths.lock.string());
  std::vector<std::pair<std::filesystem::path, struct stat>> kept = {{paths.lock, lock_file}};
  AMK_TRY(listen_fd, listen_unix(paths.socket));
  ::lstat(paths.socket.c_str(), &socket_file);
  // For clients whose environment would have them look elsewhere (paths.cpp). On a full disk they do.
  const std::string told = paths.socket.string() + "\n";
  [[maybe_unused]] const bool written =
      ::ftruncate(lock.get(), 0) == 0 && ::pwrite(lock.get(), told.data(), told.size(), 0) == static_cast<ssize_t>(told.size());
  auto made = make_server();
  if (!made) {
    ::close(listen_fd);
    ::unlink(paths.socket.c_str());
    log_line("error", "the daemon cannot start: " + made.error().message);
    ready.say("error " + to_json(made.error()).dump(-1, ' ', false, Json::error_handler_t::replace));
    return tl::unexpected<Error>(std::move(made).error());
  }
  const std::shared_ptr<mcp::Server> server = *std::move(made);
  for (const std::string& name : options.keeps) {
    struct stat file {};
    if (::lstat((paths.workspace / name).c_str(), &file) == 0) kept.emplace_back(paths.workspace / name, file);
  }
  const auto busy = [&] { return options.busy && options.busy(); };

  DaemonExit why = DaemonExit::Idle;
  bool told_to_stop = false;
  int clients = 0;
  const auto control = [&](const Json& request) -> Result<Json> {
    if (!request.is_object()) return bad_field("control", request, "an object");
    AMK_TRY(info, flag_of(request, "info"));
    AMK_TRY(stop, flag_of(request, "stop"));
    AMK_TRY(force, flag_of(request, "force"));
    if (info) return Json{{"pid", ::getpid()}, {"version", options.version}, {"build", build_id()}, {"clients", clients}, {"busy", busy()}};
    if (stop) {
      if (busy() && !force)
        return fail(ErrorKind::Conflict,
                    "jobs are running, or agents or pages are connected over HTTP; stop it with force (--force), or end those first");
      told_to_stop = true;
      return Json{{"pid", ::getpid()}, {"stopping", true}};
    }
    if (options.control) return options.control(request);
    return bad_field("control", request, "info or stop");
  };
  {
    Connections connections(*server, listen_fd,
                            {.hello = {{"build", build_id()}, {"pid", ::getpid()}, {"version", options.version}},
                             .max_connections = options.max_connections,
                             .control = [&](const Json& request) -> Json {
                               Result<Json> answer = control(request);
                               return answer ? Json{{"result", *std::move(answer)}} : to_json(answer.error());
                             },
                             .may_retire = [&] { return !busy(); }});
    const Fd signal_fd(::signalfd(-1, &signals, SFD_CLOEXEC));
    log_line("info", "daemon " + std::to_string(::getpid()) + " serves " + paths.workspace.string() + " at " + paths.socket.string());
    ready.say("ok");
    if (options.on_listening) options.on_listening();

    auto last_busy = std::chrono::steady_clock::now(), last_look = last_busy;
    for (;;) {
      pollfd fds[2] = {{connections.poll_fd(), POLLIN, 0}, {signal_fd.get(), POLLIN, 0}};
      const bool can_idle = options.idle_exit_s > 0;
      constexpr int look_ms = std::chrono::milliseconds(kWorkspaceLook).count();
      const int tick_ms = can_idle ? std::clamp(static_cast<int>(options.idle_exit_s * 250), 10, look_ms) : look_ms;
      ::poll(fds, 2, tick_ms);
      clients = connections.count();
      if (fds[0].revents) connections.run_once();
      if (fds[1].revents) {
        signalfd_siginfo info{};
        if (::read(signal_fd.get(), &info, sizeof info) == sizeof info && info.ssi_signo != SIGHUP) {
          why = DaemonExit::Signal;
          break;
        }
      }
      if (told_to_stop) {
        why = DaemonExit::Signal;
        break;
      }
      if (connections.retired()) {
        why = DaemonExit::Retired;
        break;
      }
      const auto now = std::chrono::steady_clock::now();
      // Without its workspace nothing that is written arrives where a client looks, and nobody finds this process: it would stay for good if a job
      // or a client keeps it busy.
      if (now - last_look >= kWorkspaceLook) {
        last_look = now;
        const auto gone = std::find_if(kept.begin(), kept.end(),
                                       [](const auto& file) { return !still_leads_to(file.first, file.second) || was_cut(file.first, file.second); });
        if (gone != kept.end()) {
          log_line("error", gone->first.string() + " was deleted, moved, replaced or cut");
          why = DaemonExit::WorkspaceGone;
          break;
        }
      }
      if (connections.count() > 0 || busy()) last_busy = now;
      if (can_idle && std::chrono::duration<double>(now - last_busy).count() >= options.idle_exit_s) break;
    }
    log_line("info", why == DaemonExit::Idle            ? "idle: exiting"
                     : why == DaemonExit::Signal        ? "told to stop: exiting"
                     : why == DaemonExit::WorkspaceGone ? "without its workspace: exiting"
                                                        : "replaced by another build: exiting");
    exit_at_the_latest(std::chrono::seconds(10));
    // In this order: nobody finds the socket any more, then nobody is accepted, then those who are here hear the end. In a workspace that was put
    // in the place of ours the socket is another daemon's.
    if (still_leads_to(paths.socket, socket_file)) ::unlink(paths.socket.c_str());
    connections.stop_listening();
    server->shut_down();
    connections.flush(100);
    if (options.on_stopping) options.on_stopping();
  }
  return why;
}

}  // namespace amk::daemon
