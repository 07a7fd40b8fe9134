#include "server/cli/cli.h"

#include <signal.h>

#include "core/base/error.h"
#include "server/cli/command_line.h"

namespace amk::cli {

int exit_code_of(const Error& error) {
  switch (error.kind) {
    case ErrorKind::InvalidArgument:
    case ErrorKind::NotFound:
    case ErrorKind::Unsupported:
      return kUsage;
    case ErrorKind::Rejected:
      return kNotGood;
    default:
      return kMachinery;
  }
}

int run(int argc, char** argv, int stdout_fd) {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file at its limit (ulimit -f) is an error of the write, as a full disk is
  return CommandLine(stdout_fd).run(argc, argv);
}

}  // namespace amk::cli
