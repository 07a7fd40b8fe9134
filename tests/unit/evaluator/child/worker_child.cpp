// A worker that answers, crashes, exits, hangs with a grandchild, floods, or writes what it is told to, as asked: the child of worker_test.cpp.
#include <unistd.h>

#include <csignal>

#include "core/base/json.h"
#include "kernels/evaluator/worker_process.h"

using namespace amk;

int main() {
  return serve_worker(0, 1, [](const Message& request) -> Result<Message> {
    const std::string op = request.body.value("op", "");
    Message reply;
    if (op == "echo") {
      reply.body = {{"text", request.body.at("text")}};
      reply.payload = std::string(request.body.value("payload", std::size_t{0}), 'x');
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
