// Starting the daemon and connecting to it: the client's side of the socket.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "core/base/hash.h"
#include "core/base/number_text.h"
#include "core/base/parse_json.h"
#include "server/daemon/daemon.h"
#include "server/daemon/error_json.h"
#include "server/daemon/unix_socket.h"

extern char** environ;

namespace amk::daemon {
namespace {

using Clock = std::chrono::steady_clock;

int ms_until(Clock::time_point t) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(t - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(std::min<std::int64_t>(left, 60'000));
}

// One line, byte by byte, so that nothing that follows is taken. nullopt at the end of the stream or when time is up.
std::optional<std::string> read_line(int fd, Clock::time_point until) {
  std::string line;
  while (line.size() < 64u << 10) {
    pollfd p{fd, POLLIN, 0};
    const int ready = ::poll(&p, 1, ms_until(until));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    char c;
    const ssize_t n = ::read(fd, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    if (c == '\n') return line;
    line += c;
  }
  return std::nullopt;
}

bool send_line(int fd, const Json& message) {
  const std::string line = canonical_dump(message) + "\n";
  return ::send(fd, line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
}

// The daemon's hello; an empty object if it went away before it said anything.
Json hello_of(int fd, Clock::time_point until) {
  const auto line = read_line(fd, until);
  if (!line) return Json::object();
  auto parsed = parse_json(*line, "hello");
  if (!parsed || !parsed->contains("amk_daemon") || !(*parsed)["amk_daemon"].is_object()) return Json::object();
  return (*parsed)["amk_daemon"];
}

// A connection on which the daemon has said hello, greeted back. A daemon of another build than wanted (empty: any will do) is asked to
// make room if it is not busy: then Conflict, and the caller starts the wanted one.
Result<int> greet(int fd, Clock::time_point until, const std::string& wanted_build) {
  const Json hello = hello_of(fd, until);
  if (hello.empty()) {
    ::close(fd);
    if (Clock::now() >= until)
      return fail(ErrorKind::Unavailable,
                  "the daemon holds the workspace but does not answer: it is stopped or starved (its process id is in workspace.lock)");
    return fail(ErrorKind::Unavailable, "the daemon went away while we connected");
  }
  if (!wanted_build.empty() && hello.value("build", Json()) != wanted_build) {
    send_line(fd, {{"amk_client", {{"retire", wanted_build}}}});
    const Json answer = hello_of(fd, until);
    if (answer.empty()) {
      ::close(fd);
      return fail(ErrorKind::Conflict, "a daemon of another build made room");
    }
    std::fprintf(stderr, "amk: the daemon of this workspace is another build (%s) and busy; using it as it is\n",
                 hello.value("version", std::string("?")).c_str());
  }
  std::error_code problem;
  const std::string cwd = std::filesystem::current_path(problem).string();
  if (!send_line(fd, {{"amk_client", {{"cwd", problem ? std::string() : cwd}}}})) {
    ::close(fd);
    return fail(ErrorKind::Unavailable, "the daemon went away while we connected");
  }
  return fd;
}

Result<int> try_connect(const Paths& paths, Clock::time_point until, const std::string& wanted_build) {
  AMK_TRY(fd, connect_unix(paths.socket));
  return greet(fd, until, wanted_build);
}

// Everything that the child needs is made before fork: between fork and exec only async-signal-safe calls are allowed, since
// other threads may hold any lock.
struct Prepared {
  std::vector<char*> argv, environment;
  std::vector<std::string> storage;
  std::string out_path;
};

Prepared prepare(const Paths& paths, const Launch& launch, int ready_fd) {
  Prepared p;
  p.out_path = (paths.logs / "daemon.out").string();
  p.storage = launch.argv;
  p.storage.push_back("AMK_READY_FD=" + std::to_string(ready_fd));
  for (std::size_t i = 0; i + 1 < p.storage.size(); ++i) p.argv.push_back(p.storage[i].data());
  p.argv.push_back(nullptr);
  for (char** e = environ; *e; ++e)
    if (std::strncmp(*e, "AMK_READY_FD=", 13) != 0) p.environment.push_back(*e);
  p.environment.push_back(p.storage.back().data());
  p.environment.push_back(nullptr);
  return p;
}

void close_from(int first) {
#ifdef __NR_close_range
  if (::syscall(__NR_close_range, first, ~0u, 0) == 0) return;
#endif
  for (int fd = first; fd < 4096; ++fd) ::close(fd);
}

[[noreturn]] void become_daemon(const Prepared& p, int ready_fd) {
  ::setsid();
  // A grandchild: init reaps it whenever it ends, and it can never get a terminal again.
  if (::fork() != 0) ::_exit(0);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int s = 1; s < 32; ++s) ::signal(s, SIG_DFL);
  // The log of last resort (crashes, sanitizers): cut when it has grown large.
  struct stat info {};
  const bool large = ::stat(p.out_path.c_str(), &info) == 0 && info.st_size > (1 << 20);
  const int null = ::open("/dev/null", O_RDWR);
  int out = ::open(p.out_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | (large ? O_TRUNC : 0), 0600);
  if (out < 0) out = null;
  // The ready pipe must survive the dup2s below and close_from.
  const int ready = ::fcntl(ready_fd, F_DUPFD, 10);
  ::dup2(null, 0);
  ::dup2(out, 1);
  ::dup2(out, 2);
  ::dup2(ready, 3);
  close_from(4);
  ::execve(p.argv[0], p.argv.data(), p.environment.data());
  constexpr char kFailed[] = "error {\"error\":{\"kind\":\"unavailable\",\"message\":\"cannot execute the daemon's program\",\"data\":{}}}\n";
  [[maybe_unused]] const ssize_t n = ::write(3, kFailed, sizeof kFailed - 1);
  ::_exit(127);
}

// Starts a daemon and waits for its word: "ok", "running" (another one won) or the reason why it cannot.
Status start(const Paths& paths, const Launch& launch, Clock::time_point until) {
  // Where nothing can be written the daemon has no place for its last words either.
  if (::access(paths.workspace.c_str(), W_OK | X_OK) != 0)
    return os_error("write to", "the workspace " + paths.workspace.string(), ErrorKind::Unavailable);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return os_error("pipe", "for the daemon's start", ErrorKind::Unavailable);
  const Prepared prepared = prepare(paths, launch, 3);
  const pid_t child = ::fork();
  if (child == 0) become_daemon(prepared, ends[1]);
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return os_error("fork", "for the daemon", ErrorKind::Unavailable);
  }
  int ignored;
  while (::waitpid(child, &ignored, 0) < 0 && errno == EINTR) {
  }
  const auto line = read_line(ends[0], until);
  ::close(ends[0]);
  if (line == "ok" || line == "running") return {};
  if (line && line->starts_with("error ")) {
    if (auto parsed = parse_json(std::string_view(*line).substr(6), "daemon"); parsed && parsed->contains("error")) {
      const Error why = error_of((*parsed)["error"]).value();
      return fail(ErrorKind::Unavailable, "the daemon cannot start: " + why.message, why.data);
    }
  }
  return fail(ErrorKind::Unavailable, "the daemon ended or hung before it was ready; its last words are in " + (paths.logs / "daemon.out").string(),
              {{"log", (paths.logs / "daemon.out").string()}});
}

std::string build_of(const std::string& executable) {
  const int fd = ::open(executable.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info {};
  std::string out = "unknown";
  if (fd >= 0 && ::fstat(fd, &info) == 0 && info.st_size > 0) {
    const auto size = static_cast<std::size_t>(info.st_size);
    void* map = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (map != MAP_FAILED) {
      out = hash128_hex({static_cast<const char*>(map), size});
      ::munmap(map, size);
    }
  }
  if (fd >= 0) ::close(fd);
  return out;
}

}  // namespace

std::string build_id() {
  static const std::string id = build_of("/proc/self/exe");
  return id;
}

int take_ready_fd() {
  const char* text = std::getenv("AMK_READY_FD");
  if (!text) return -1;
  const int fd = std::atoi(text);
  ::unsetenv("AMK_READY_FD");
  if (fd < 3 || ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return -1;
  return fd;
}

Launch default_launch(const Paths& paths) {
  std::error_code problem;
  std::string self = std::filesystem::read_symlink("/proc/self/exe", problem).string();
  // Rebuilt while we run: the file of that name is the newer program, which is the one to start.
  constexpr std::string_view kDeleted = " (deleted)";
  if (self.ends_with(kDeleted)) self.resize(self.size() - kDeleted.size());
  if (problem || !std::filesystem::exists(self, problem)) self = "/proc/self/exe";
  return {{self, "serve", "--background", "--workspace", paths.workspace.string()}};
}

Result<Json> control(const Paths& paths, const Json& request) {
  const auto until = Clock::now() + std::chrono::seconds(10);
  AMK_TRY(fd, connect_unix(paths.socket));
  const Json hello = hello_of(fd, until);
  Json answer = Json::object();
  if (!hello.empty() && send_line(fd, {{"amk_client", {{"control", request}}}})) answer = hello_of(fd, until).value("control", Json::object());
  ::close(fd);
  if (answer.contains("result")) return answer["result"];
  if (answer.contains("error")) return error_of(answer["error"]);
  return fail(ErrorKind::Unavailable, "the daemon gave no answer");
}

Result<int> connect_only(const Paths& paths) { return try_connect(paths, Clock::now() + std::chrono::seconds(5), ""); }

Result<int> connect_or_start(const Paths& paths, const Launch& launch, double timeout_s) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  std::string wanted_build = build_of(launch.argv.at(0));
  for (int attempt = 0;; ++attempt) {
    auto fd = try_connect(paths, until, wanted_build);
    if (fd) return fd;
    // Asked once: two builds that take turns must not chase each other away.
    if (fd.error().kind == ErrorKind::Conflict) wanted_build.clear();
    if (Clock::now() >= until)
      return fail(ErrorKind::Unavailable, "no daemon for " + paths.workspace.string() + " within " + shortest(timeout_s) +
                                              " s: " + fd.error().message + "; see " + paths.logs.string());
    // A daemon that is on its way out still holds the lock: give it a moment before the next try.
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::milliseconds(std::min(5 * attempt, 100)));
    AMK_CHECK(start(paths, launch, until));
  }
}

}  // namespace amk::daemon
