#include "server/cli/cli.h"
#include "server/daemon/shim.h"

int main(int argc, char** argv) {
  // First of all: nothing but the program's one document may reach stdout, whatever a library prints.
  const int stdout_fd = amk::daemon::take_stdout();
  return amk::cli::run(argc, argv, stdout_fd);
}
