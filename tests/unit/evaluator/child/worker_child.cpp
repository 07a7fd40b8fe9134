// A worker that answers, crashes, exits, hangs with a grandchild, floods, or writes what it is told to, as asked: the child of worker_test.cpp.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string_view>
#include <thread>
#include <tuple>

#include "core/base/json.h"
#include "kernels/evaluator/confine.h"
#include "kernels/evaluator/worker_process.h"

using namespace amk;

namespace {

// Tries what a confined process may not do, and what it must still be able to. 0: it worked, else errno.
Json tries(int inherited) {
  const auto outcome = [](long result) { return result >= 0 ? 0 : errno; };
  Json out;
  out["inherited"] = outcome(::fcntl(inherited, F_GETFD));  // before anything else takes the number
  for (const auto& [name, family, type] :
       {std::tuple{"inet", AF_INET, SOCK_STREAM}, std::tuple{"inet6", AF_INET6, SOCK_DGRAM}, std::tuple{"packet", AF_PACKET, SOCK_RAW},
        std::tuple{"vsock", AF_VSOCK, SOCK_STREAM}, std::tuple{"unix", AF_UNIX, SOCK_STREAM}, std::tuple{"netlink", AF_NETLINK, SOCK_RAW}}) {
    out[name] = outcome(::socket(family, type, 0));
  }
  std::thread([&] { out["inet_in_a_thread"] = outcome(::socket(AF_INET, SOCK_STREAM, 0)); }).join();
  int pair[2], pipe_ends[2];
  out["socketpair"] = outcome(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  out["pipe"] = outcome(::pipe(pipe_ends));
  std::uint8_t parameters[120] = {};
  out["io_uring"] = outcome(::syscall(SYS_io_uring_setup, 1, parameters));
  out["ptrace"] = outcome(::ptrace(PTRACE_ATTACH, 0x3fffffff, nullptr, nullptr));
  char byte = 0;
  const iovec here{&byte, 1}, there{&out, 1};
  out["other_memory"] = outcome(::process_vm_readv(::getppid(), &here, 1, &there, 1, 0));
  char* const argv[] = {const_cast<char*>("true"), nullptr};
  out["exec"] = outcome(::execv("/bin/true", argv));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(3);
  int status = 0;
  ::waitpid(child, &status, 0);
  out["fork"] = WIFEXITED(status) && WEXITSTATUS(status) == 3 ? 0 : 1;
  const int device = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  out["ioctl"] = outcome(::ioctl(device, TCGETS, parameters)) == ENOTTY ? 0 : 1;  // reached the driver
  out["memory"] = ::mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED ? 0 : 1;
  rlimit core{};
  ::getrlimit(RLIMIT_CORE, &core);
  out["core_limit"] = core.rlim_max;
  out["no_new_privileges"] = ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
  return out;
}

// In a folder that holds the file "old" and the folder "full". 0: it worked, else errno.
Json tries_files(const std::filesystem::path& folder) {
  const auto outcome = [](long result) { return result >= 0 ? 0 : errno; };
  const auto at = [&folder](const char* name) { return (folder / name).string(); };
  Json out;
  out["read"] = outcome(::open(at("old").c_str(), O_RDONLY));
  out["write"] = outcome(::open(at("old").c_str(), O_WRONLY));
  out["cut"] = outcome(::truncate(at("old").c_str(), 1));
  out["make"] = outcome(::open(at("new").c_str(), O_WRONLY | O_CREAT, 0600));
  out["folder"] = outcome(::mkdir(at("folder").c_str(), 0700));
  out["link"] = outcome(::symlink("/etc/passwd", at("link").c_str()));
  out["socket"] = outcome(::mknod(at("socket").c_str(), S_IFSOCK | 0600, 0));
  out["rename"] = outcome(::rename(at("old").c_str(), at("renamed").c_str()));
  out["remove"] = outcome(::unlink(at("victim").c_str()));
  std::thread([&] { out["make_in_a_thread"] = outcome(::open(at("newer").c_str(), O_WRONLY | O_CREAT, 0600)); }).join();
  return out;
}

Json tries_devices() {
  const auto outcome = [](long result) { return result >= 0 ? 0 : errno; };
  Json out;
  out["null"] = outcome(::open("/dev/null", O_RDWR));
  out["shared_memory"] = outcome(::shm_open("/amk-worker-test", O_RDWR | O_CREAT, 0600));
  ::shm_unlink("/amk-worker-test");
  out["own_name"] = outcome(::open("/proc/self/comm", O_WRONLY));
  out["kmsg"] = outcome(::open("/dev/kmsg", O_WRONLY));
  out["signal_to_parent"] = outcome(::kill(::getppid(), 0));
  return out;
}

}  // namespace

// "--confined FOLDER…": gives up what a GPU worker gives up, first, and keeps these folders.
int main(int argc, char** argv) {
  Json confined;
  if (argc > 1 && std::string_view(argv[1]) == "--confined") {
    std::vector<std::filesystem::path> writable(argv + 2, argv + argc);
    confined = confine_worker({0, 1}, writable);
  }
  return serve_worker(0, 1, [&confined](const Message& request) -> Result<Message> {
    const std::string op = request.body.value("op", "");
    Message reply;
    if (op == "echo") {
      reply.body = {{"text", request.body.at("text")}};
      reply.payload = std::string(request.body.value("payload", std::size_t{0}), 'x');
      return reply;
    }
    if (op == "request") {  // as it was served
      reply.body = {{"request", request.body}};
      return reply;
    }
    if (op == "pid") {
      reply.body = {{"pid", getpid()}, {"pgid", getpgid(0)}};
      return reply;
    }
    if (op == "crash") {
      std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would make it an exit
      std::raise(SIGSEGV);
    }
    if (op == "exit") _exit(7);
    if (op == "hang") {
      if (fork() == 0) {  // a grandchild in the same group must go too
        while (true) pause();
      }
      while (true) pause();
    }
    if (op == "wait") {
      while (true) pause();
    }
    if (op == "garbage") {
      if (write(1, "no message at all, and much too long for a header of any kind whatever\n", 72) < 0) _exit(1);
      while (true) pause();
    }
    if (op == "tries") {
      reply.body = {{"confined", confined}, {"tries", tries(request.body.at("inherited").get<int>())}};
      reply.body["outside"] = tries_files(request.body.at("outside").get<std::string>());
      reply.body["inside"] = tries_files(request.body.at("inside").get<std::string>());
      reply.body["devices"] = tries_devices();
      return reply;
    }
    if (op == "raw") {
      const std::string bytes = request.body.at("bytes");
      if (write(1, bytes.data(), bytes.size()) < 0) _exit(1);
      while (true) pause();
    }
    if (op == "flood") {  // answers to what nobody asked, without end
      const std::string bytes = "amk1 8 0\n{\"id\":0}";
      while (write(1, bytes.data(), bytes.size()) > 0) {
      }
      _exit(1);
    }
    return fail(ErrorKind::Rejected, "no such op", {{"rule", "op"}});
  });
}
