#include "tests/crash/child.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

namespace amk::test {

ChildEnd run_child(const std::function<int()>& body, long after_us) {
  ::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  if (pid < 0) return ChildEnd::Failed;
  if (after_us >= 0) {
    const timespec wait{after_us / 1'000'000, after_us % 1'000'000 * 1000};
    ::nanosleep(&wait, nullptr);
    ::kill(pid, SIGKILL);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGKILL ? ChildEnd::Killed : ChildEnd::Failed;
  return WEXITSTATUS(status) == 0 ? ChildEnd::Finished : ChildEnd::Failed;
}

}  // namespace amk::test
