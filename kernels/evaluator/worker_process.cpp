#include "kernels/evaluator/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "core/base/json.h"
#include "core/base/memory_map.h"

extern char** environ;

namespace amk {
namespace {

std::atomic<std::uint64_t> generations{0};

struct Pipe {
  int read = -1, write = -1;
  ~Pipe() {
    if (read >= 0) ::close(read);
    if (write >= 0) ::close(write);
  }
  Status open() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0)
      return fail(ErrorKind::Io, std::string("pipe2: ") + std::strerror(errno), {{"call", "pipe2"}, {"errno", errno}});
    read = fds[0];
    write = fds[1];
    return {};
  }
};

ErrorKind kind_of(std::string_view text) {
  for (const ErrorKind kind : {ErrorKind::InvalidArgument, ErrorKind::NotFound, ErrorKind::Unsupported, ErrorKind::Corrupt, ErrorKind::Rejected,
                               ErrorKind::Conflict, ErrorKind::Unavailable, ErrorKind::Timeout, ErrorKind::Cancelled, ErrorKind::Io}) {
    if (to_string(kind) == text) return kind;
  }
  return ErrorKind::Internal;
}

}  // namespace

Result<WorkerProcess> WorkerProcess::start(const std::vector<std::string>& argv) {
  Pipe requests, replies;
  AMK_CHECK(requests.open());
  AMK_CHECK(replies.open());
  std::vector<char*> arguments;
  for (const std::string& a : argv) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, requests.read, 0);
  posix_spawn_file_actions_adddup2(&actions, replies.write, 1);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int code = argv.empty() ? EINVAL : posix_spawn(&pid, argv[0].c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (code != 0)
    return fail(ErrorKind::Unavailable,
                "cannot start the worker " + (argv.empty() ? std::string("(no program)") : argv[0]) + ": " + std::strerror(code),
                {{"call", "posix_spawn"}, {"errno", code}});
  WorkerProcess process;
  process.pid_ = pid;
  process.to_ = std::exchange(requests.write, -1);
  process.from_ = std::exchange(replies.read, -1);
  process.generation_ = ++generations;
  return process;
}

WorkerProcess::~WorkerProcess() { kill(); }

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      to_(std::exchange(other.to_, -1)),
      from_(std::exchange(other.from_, -1)),
      generation_(other.generation_),
      next_id_(other.next_id_) {}

WorkerProcess& WorkerProcess::operator=(WorkerProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(to_, other.to_);
  std::swap(from_, other.from_);
  std::swap(generation_, other.generation_);
  std::swap(next_id_, other.next_id_);
  return *this;
}

void WorkerProcess::kill() {
  if (to_ >= 0) ::close(std::exchange(to_, -1));
  if (from_ >= 0) ::close(std::exchange(from_, -1));
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);  // the group does not exist before the child's setpgid
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

tl::unexpected<Error> WorkerProcess::died(const Error& seen) {
  Json data = Json::object();
  std::string how = seen.message;
  int status = 0;
  // The pipe may close a moment before the process can be collected.
  for (int i = 0; i < 50 && pid_ > 0; ++i) {
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      if (WIFSIGNALED(status)) {
        data["signal"] = WTERMSIG(status);
        how = "ended by signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
      } else if (WIFEXITED(status)) {
        data["exit"] = WEXITSTATUS(status);
        how = "exited with " + std::to_string(WEXITSTATUS(status));
      }
      ::kill(-pid_, SIGKILL);  // whatever it started
      pid_ = -1;
      break;
    }
    ::usleep(10'000);
  }
  kill();
  return fail(ErrorKind::Unavailable, "the GPU worker is gone: " + how, std::move(data));
}

Result<Message> WorkerProcess::call(const Json& request, std::chrono::milliseconds limit, const std::function<bool()>& stop) {
  if (!alive()) return fail(ErrorKind::Unavailable, "the GPU worker is not running");
  const std::uint64_t id = next_id_++;
  const Deadline end = std::chrono::steady_clock::now() + limit;
  Message message;
  message.body = request;
  message.body["id"] = id;
  if (const Status sent = write_message(to_, message, end); !sent) {
    if (sent.error().kind != ErrorKind::Timeout) return died(sent.error());
    kill();
    return fail(ErrorKind::Timeout, "the GPU worker did not take a request within its time limit");
  }
  while (true) {
    // First only for readiness, in slices, so that a cancellation is seen; the message itself then comes at once.
    const Deadline slice = std::min(end, std::chrono::steady_clock::now() + std::chrono::milliseconds(100));
    pollfd ready{from_, POLLIN, 0};
    const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(slice - std::chrono::steady_clock::now()).count();
    const int n = ::poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(0, wait)));
    if (n == 0 || (n < 0 && errno == EINTR)) {
      if (stop && stop()) {
        kill();
        return fail(ErrorKind::Cancelled, "cancelled; the GPU worker was stopped");
      }
      if (std::chrono::steady_clock::now() >= end) {
        kill();
        return fail(ErrorKind::Timeout, "the GPU worker did not answer within " + std::to_string(limit.count()) + " ms and was killed");
      }
      continue;
    }
    Result<Message> reply = read_message(from_, std::max(end, std::chrono::steady_clock::now() + std::chrono::seconds(10)));
    if (!reply) {
      if (reply.error().kind == ErrorKind::Timeout) {
        kill();
        return reply;
      }
      return died(reply.error());
    }
    auto taken = take_reply(std::move(*reply), id);
    if (taken) return std::move(*taken);
    // An answer to a request that was given up; a worker that sends nothing else is as good as silent.
    if (std::chrono::steady_clock::now() >= end) {
      kill();
      return fail(ErrorKind::Timeout,
                  "the GPU worker answered everything but the request within " + std::to_string(limit.count()) + " ms and was killed");
    }
  }
}

std::optional<Result<Message>> take_reply(Message message, std::uint64_t id) {
  const Json& body = message.body;
  if (!body.is_object()) return std::nullopt;
  const auto of = body.find("id");
  if (of == body.end() || !of->is_number_unsigned() || of->get<std::uint64_t>() != id) return std::nullopt;
  const auto error = body.find("error");
  if (error == body.end()) return message;
  const auto text = [&error](const char* key) {
    const auto at = error->is_object() ? error->find(key) : error->end();
    return at != error->end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  Json data = Json::object();
  if (error->is_object())
    if (const auto at = error->find("data"); at != error->end() && at->is_object()) data = *at;
  return fail(kind_of(text("kind")), text("message").empty() ? "the GPU worker failed without saying why" : text("message"), std::move(data));
}

bool WorkerProcess::alive() {
  if (pid_ <= 0) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return true;
  ::kill(-pid_, SIGKILL);  // whatever it started
  pid_ = -1;
  return false;
}

int serve_worker(int in, int out, const std::function<Result<Message>(const Message& request)>& handle) {
  // A parent that dies takes its worker along: its end of the pipe closes, also while a request is being served. (PR_SET_PDEATHSIG would fire when
  // the *thread* that started the worker ends, which in a daemon is long before the daemon does.)
  std::thread([in] {
    while (true) {
      pollfd gone{in, 0, 0};
      if (::poll(&gone, 1, -1) > 0 && (gone.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) ::_exit(0);
    }
  }).detach();
  std::signal(SIGPIPE, SIG_IGN);
  constexpr auto kForever = std::chrono::hours(24 * 365);
  while (true) {
    Result<Message> request = read_message(in, std::chrono::steady_clock::now() + kForever);
    if (!request) return request.error().kind == ErrorKind::Unavailable ? 0 : 3;
    // The number of the call is between the two ends: who serves sees equal requests as equal.
    const auto id = request->body.is_object() ? request->body.value("id", std::uint64_t{0}) : 0;
    if (request->body.is_object()) request->body.erase("id");
    Message reply;
    const std::uint64_t failures = mapped_read_failures();
    Result<Message> handled = handle(*request);
    // A model that was loaded from a file which could not be read whole is no model: it is told, and goes with this process.
    const Status whole = mapped_reads_succeeded_since(failures);
    if (!whole) handled = tl::unexpected<Error>(whole.error());
    if (handled) {
      reply = std::move(*handled);
    } else {
      reply.body = to_json(handled.error());
    }
    reply.body["id"] = id;
    if (!write_message(out, reply, std::chrono::steady_clock::now() + std::chrono::minutes(5)) || !whole) return 3;
  }
}

}  // namespace amk
