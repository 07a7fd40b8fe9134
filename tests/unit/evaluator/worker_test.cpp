// A real child process (child/worker_child.cpp): answers, crashes, hangs, floods; and the frames themselves.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "core/base/json.h"
#include "kernels/evaluator/framing.h"
#include "kernels/evaluator/gpu_lock.h"
#include "kernels/evaluator/worker_process.h"
#include "tests/support/temp_folder.h"

using namespace amk;
using namespace std::chrono_literals;

namespace {

// 0: this kernel has none.
int landlock_version() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, 1);  // LANDLOCK_CREATE_RULESET_VERSION
  return version > 0 ? static_cast<int>(version) : 0;
}

std::vector<std::string> worker_argv() { return {AMK_WORKER_CHILD}; }

Deadline in(std::chrono::milliseconds ms) { return std::chrono::steady_clock::now() + ms; }

struct TestPipe {
  int fds[2];
  TestPipe() { REQUIRE(pipe(fds) == 0); }
  ~TestPipe() {
    close(fds[0]);
    close(fds[1]);
  }
};

}  // namespace

TEST_CASE("worker: requests and replies with payloads; errors keep kind, message and data") {
  auto worker = WorkerProcess::start(worker_argv());
  REQUIRE(worker);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}, std::size_t{20'000'000}}) {
    const auto reply = worker->call({{"op", "echo"}, {"text", "grüße"}, {"payload", size}}, 20s);
    REQUIRE_MESSAGE(reply, reply.error().message);
    CHECK(reply->body.at("text") == "grüße");
    CHECK(reply->payload.size() == size);
  }
  const auto error = worker->call({{"op", "unknown"}}, 5s);
  REQUIRE_FALSE(error);
  CHECK(error.error().kind == ErrorKind::Rejected);
  CHECK(error.error().data.at("rule") == "op");
  CHECK(worker->alive());
}

TEST_CASE("worker: a crash and an exit are told apart, and the next worker is unharmed") {
  auto worker = WorkerProcess::start(worker_argv());
  REQUIRE(worker);
  const auto crashed = worker->call({{"op", "crash"}}, 20s);
  REQUIRE_FALSE(crashed);
  CHECK(crashed.error().kind == ErrorKind::Unavailable);
  CHECK(crashed.error().data.at("signal") == SIGSEGV);
  CHECK_FALSE(worker->alive());
  CHECK_FALSE(worker->call({{"op", "echo"}, {"text", "x"}}, 1s));

  auto second = WorkerProcess::start(worker_argv());
  REQUIRE(second);
  CHECK(second->generation() > worker->generation());
  const auto exited = second->call({{"op", "exit"}}, 20s);
  REQUIRE_FALSE(exited);
  CHECK(exited.error().data.at("exit") == 7);
}

TEST_CASE("worker: a request that is sent twice is served as the same request twice") {
  // Services keep what they opened for a request (a model on the GPU) by the request's text.
  auto worker = WorkerProcess::start(worker_argv());
  REQUIRE(worker);
  const Json asked = {{"op", "request"}, {"model", "m"}, {"max_seq", 4096}};
  for (int i = 0; i < 2; ++i) {
    const auto reply = worker->call(asked, 20s);
    REQUIRE(reply);
    CHECK(reply->body.at("request") == asked);
  }
}

TEST_CASE("worker: a hang is cut at its limit, with its whole process group") {
  auto worker = WorkerProcess::start(worker_argv());
  REQUIRE(worker);
  const auto ids = worker->call({{"op", "pid"}}, 20s);
  REQUIRE(ids);
  const pid_t group = ids->body.at("pgid").get<pid_t>();
  CHECK(group == worker->pid());
  const auto start = std::chrono::steady_clock::now();
  const auto hung = worker->call({{"op", "hang"}}, 300ms);
  REQUIRE_FALSE(hung);
  CHECK(hung.error().kind == ErrorKind::Timeout);
  CHECK(std::chrono::steady_clock::now() - start < 10s);
  // The grandchild is gone as well (collected by init a moment later).
  bool gone = false;
  for (int i = 0; i < 200 && !gone; ++i) {
    gone = ::kill(-group, 0) != 0 && errno == ESRCH;
    if (!gone) std::this_thread::sleep_for(10ms);
  }
  CHECK(gone);
}

TEST_CASE("worker: outlives the thread that started it, is gone with its parent's pipe, and an idle death is noticed") {
  std::optional<WorkerProcess> worker;
  std::thread([&worker] {
    auto started = WorkerProcess::start(worker_argv());
    if (started) worker.emplace(std::move(*started));
  }).join();
  REQUIRE(worker);
  std::this_thread::sleep_for(100ms);  // what PR_SET_PDEATHSIG would have killed is gone by now
  CHECK(worker->call({{"op", "echo"}, {"text", "x"}}, 20s));

  ::kill(worker->pid(), SIGKILL);
  for (int i = 0; i < 500 && worker->alive(); ++i) std::this_thread::sleep_for(10ms);
  CHECK_FALSE(worker->alive());

  // A parent that was killed says nothing: its end of the pipe closes while the worker is busy.
  TestPipe to, from;
  const pid_t busy = fork();
  REQUIRE(busy >= 0);
  if (busy == 0) {
    dup2(to.fds[0], 0);
    dup2(from.fds[1], 1);
    for (const int fd : {to.fds[0], to.fds[1], from.fds[0], from.fds[1]}) close(fd);
    execl(AMK_WORKER_CHILD, AMK_WORKER_CHILD, nullptr);
    _exit(127);
  }
  Message hang;
  hang.body = {{"op", "wait"}, {"id", 1}};
  REQUIRE(write_message(to.fds[1], hang, in(5s)));
  close(to.fds[1]);
  to.fds[1] = open("/dev/null", O_WRONLY);
  int status = 0;
  pid_t ended = 0;
  for (int i = 0; i < 1000 && ended == 0; ++i) {
    ended = waitpid(busy, &status, WNOHANG);
    if (ended == 0) std::this_thread::sleep_for(10ms);
  }
  CHECK(ended == busy);
  CHECK(WIFEXITED(status));
  if (ended == 0) ::kill(busy, SIGKILL);
}

TEST_CASE("worker: cancelling stops it; garbage is an error, not a hang") {
  auto worker = WorkerProcess::start(worker_argv());
  REQUIRE(worker);
  const auto cancelled = worker->call({{"op", "hang"}}, 60s, [] { return true; });
  REQUIRE_FALSE(cancelled);
  CHECK(cancelled.error().kind == ErrorKind::Cancelled);
  CHECK_FALSE(worker->alive());
  auto other = WorkerProcess::start(worker_argv());
  REQUIRE(other);
  CHECK_FALSE(other->call({{"op", "garbage"}}, 5s));
  CHECK_FALSE(other->alive());
  CHECK_FALSE(WorkerProcess::start({"/nonexistent/program"}));
  CHECK_FALSE(WorkerProcess::start({}));
}

TEST_CASE("worker: replies of any shape are errors, never exceptions; a flood of other answers is cut at the limit") {
  const auto framed = [](const std::string& json) { return "amk1 " + std::to_string(json.size()) + " 0\n" + json; };
  // The first request has the id 1.
  struct Reply {
    std::string json;
    ErrorKind kind;
  };
  for (const Reply& reply :
       {Reply{"[]", ErrorKind::Unavailable}, Reply{"7", ErrorKind::Unavailable}, Reply{"{\"id\":1,\"error\":\"x\"}", ErrorKind::Internal},
        Reply{"{\"id\":1,\"error\":null}", ErrorKind::Internal}, Reply{R"({"id":1,"error":{"kind":3,"message":[],"data":7}})", ErrorKind::Internal},
        Reply{R"({"id":1,"error":{"kind":"rejected","data":{"rule":"r"}}})", ErrorKind::Rejected}, Reply{R"({"id":"1"})", ErrorKind::Timeout},
        Reply{R"({"id":1.0})", ErrorKind::Timeout}, Reply{R"({"id":-1})", ErrorKind::Timeout}, Reply{R"({})", ErrorKind::Timeout}}) {
    CAPTURE(reply.json);
    auto worker = WorkerProcess::start(worker_argv());
    REQUIRE(worker);
    const auto answer = worker->call({{"op", "raw"}, {"bytes", framed(reply.json)}}, reply.kind == ErrorKind::Timeout ? 300ms : 20'000ms);
    REQUIRE_FALSE(answer);
    CHECK(answer.error().kind == reply.kind);
    CHECK_FALSE(answer.error().message.empty());
    CHECK(answer.error().data.is_object());
  }
  auto worker = WorkerProcess::start(worker_argv());
  REQUIRE(worker);
  const auto flooded = worker->call({{"op", "flood"}}, 300ms);
  REQUIRE_FALSE(flooded);
  CHECK(flooded.error().kind == ErrorKind::Timeout);
  CHECK_FALSE(worker->alive());
}

TEST_CASE("worker: a confined one has no network, no exec, no eye on other processes, no files to write, and what a CUDA context needs") {
  const int inherited = open("/dev/null", O_RDONLY);  // on purpose without O_CLOEXEC
  REQUIRE(inherited > 2);
  const test::TempFolder outside, inside;
  for (const auto& folder : {outside.path, inside.path})
    for (const char* name : {"old", "victim"}) std::ofstream(folder / name) << "some text";
  const Json request = {{"op", "tries"}, {"inherited", inherited}, {"outside", outside.path.string()}, {"inside", inside.path.string()}};
  auto argv = worker_argv();
  auto free_worker = WorkerProcess::start(argv);
  REQUIRE(free_worker);
  const auto free_reply = free_worker->call(request, 20s);
  argv.insert(argv.end(), {"--confined", inside.path.string()});
  auto worker = WorkerProcess::start(argv);
  close(inherited);
  REQUIRE(worker);
  const auto reply = worker->call(request, 20s);
  REQUIRE_MESSAGE(reply, reply.error().message);
  const Json& confined = reply->body.at("confined");
  const Json& tries = reply->body.at("tries");
  CAPTURE(reply->body.dump());
  // Without the confinement exec succeeds: the worker is gone. Everything below would hold vacuously if it failed anyway.
  CHECK_FALSE(free_reply);
  CHECK(confined.at("no_new_privileges") == true);
  CHECK(tries.at("no_new_privileges") == 1);
  CHECK(tries.at("core_limit") == 0);
  CHECK(tries.at("inherited") == EBADF);
  for (const char* needed : {"unix", "netlink", "socketpair", "pipe", "fork", "ioctl", "memory"}) CHECK_MESSAGE(tries.at(needed) == 0, needed);
  for (const auto& [what, outcome] : reply->body.at("inside").items()) CHECK_MESSAGE(outcome == 0, what);
  const Json& devices = reply->body.at("devices");
  for (const char* needed : {"null", "shared_memory", "own_name"}) CHECK_MESSAGE(devices.at(needed) == 0, needed);
  if (confined.at("files") == "read-only") {
    for (const auto& [what, outcome] : reply->body.at("outside").items())
      // The first Landlock could not forbid to cut files that may not be opened for writing.
      if (what != "read" && !(what == "cut" && outcome == 0 && landlock_version() < 3)) CHECK_MESSAGE(outcome == EACCES, what);
    CHECK(reply->body.at("outside").at("read") == 0);
    CHECK(std::filesystem::exists(outside.path / "victim"));
    CHECK(devices.at("kmsg") != 0);
    if (landlock_version() >= 6) CHECK(devices.at("signal_to_parent") == EPERM);
  } else {
    MESSAGE("this kernel has no Landlock: " << confined.at("why").get<std::string>());
  }
  if (confined.at("network") != "refused") {
    MESSAGE("this kernel has no seccomp: " << confined.at("why").get<std::string>());
    return;
  }
  for (const char* refused : {"inet", "inet6", "packet", "vsock", "inet_in_a_thread", "io_uring", "ptrace", "other_memory", "exec"})
    CHECK_MESSAGE(tries.at(refused) == EPERM, refused);
}

TEST_CASE("frames: an announced size costs nothing until its bytes arrive") {
  TestPipe p;
  const std::string text = "amk1 2 2147483648\n{}and no more";
  REQUIRE(write(p.fds[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  close(p.fds[1]);
  p.fds[1] = dup(p.fds[0]);
  const auto peak_kb = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const long before = peak_kb();
  const auto message = read_message(p.fds[0], in(5000ms));
  REQUIRE_FALSE(message);
  CHECK(message.error().kind == ErrorKind::Unavailable);
  CHECK(peak_kb() - before < 100'000);  // KiB
}

TEST_CASE("frames: damaged, cut, oversized and late messages are errors") {
  for (const std::string& text :
       {std::string("amk1 2 0\n{"), std::string("amk1 -1 0\n"), std::string("amk2 2 0\n{}"), std::string("amk1 99999999999 0\n"),
        std::string("amk1 2 0\n[}"), std::string("amk1 2 0\n[]"), std::string("amk1 2 0 \n{}"), std::string("amk1 2 0x\n{}"),
        std::string("amk1  2 0\n{}"), std::string("amk1 +2 0\n{}"), std::string("amk1 2 99999999999999999999\n{}"),
        std::string("amk1 17000000 0\n{}"), std::string(200, 'a')}) {
    TestPipe p;
    REQUIRE(write(p.fds[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    close(p.fds[1]);
    p.fds[1] = dup(p.fds[0]);
    const auto message = read_message(p.fds[0], in(1000ms));
    CHECK_FALSE(message);
  }
  TestPipe silent;
  const auto late = read_message(silent.fds[0], in(50ms));
  REQUIRE_FALSE(late);
  CHECK(late.error().kind == ErrorKind::Timeout);
}

TEST_CASE("GPU lock: one holder, released by its end, even a kill") {
  std::string folder = "/tmp/amk-lock-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  {
    auto held = GpuLock::acquire("GPU-1", 1s, {}, folder);
    REQUIRE(held);
    const auto second = GpuLock::acquire("GPU-1", 100ms, {}, folder);
    REQUIRE_FALSE(second);
    CHECK(second.error().kind == ErrorKind::Timeout);
    CHECK(GpuLock::acquire("GPU-2", 100ms, {}, folder));
    const auto stopped = GpuLock::acquire(
        "GPU-1", 60s, [] { return true; }, folder);
    REQUIRE_FALSE(stopped);
    CHECK(stopped.error().kind == ErrorKind::Cancelled);
  }
  CHECK(GpuLock::acquire("GPU-1", 100ms, {}, folder));
  const pid_t child = fork();
  if (child == 0) {
    const auto held = GpuLock::acquire("GPU-1", 1s, {}, folder);
    while (true) pause();
  }
  std::this_thread::sleep_for(200ms);
  CHECK_FALSE(GpuLock::acquire("GPU-1", 100ms, {}, folder));
  ::kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(GpuLock::acquire("GPU-1", 1s, {}, folder));
  std::filesystem::remove_all(folder);
}
