// A child process with pipes that speaks newline-delimited JSON-RPC, and a workspace that cleans up after itself. For tests and benchmarks.
// What goes wrong is thrown as std::runtime_error.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tests/support/patience.h"

namespace amk::testing {

using Milliseconds = std::chrono::milliseconds;

class Process {
 public:
  explicit Process(std::vector<std::string> argv, std::vector<std::string> environment = {});
  ~Process();  // kills and reaps
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void write(const std::string& text);
  void send(const Json& message) { write(message.dump() + "\n"); }
  void close_stdin();
  void close_stdout();
  // The next line of stdout; nullopt at the end or when it does not come in time.
  std::optional<std::string> read_line(Milliseconds limit = Milliseconds(20'000));
  // Reads messages until the reply with this id; throws if it does not come, or if something is no message. What passed by is kept in
  // `others`.
  Json reply(const Json& id, Milliseconds limit = Milliseconds(20'000));
  Json request(const std::string& method, Json params, int id) {
    send({{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", std::move(params)}});
    return reply(id);
  }
  // Everything else on stdout until its end.
  std::string read_rest();
  void kill(int signal) const;
  // Time until it was gone; nullopt if it still runs after `limit`. Sets exit_code (128 + signal if killed).
  std::optional<Milliseconds> wait(Milliseconds limit);

  std::vector<Json> others;
  int exit_code = -1;

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string buffer_;
};

// Exists while the object does; its daemon, and those of workspaces inside it, are stopped at the end.
class Workspace {
 public:
  Workspace();
  ~Workspace();
  const std::filesystem::path& path() const { return path_; }
  // Process ids of daemons that serve this workspace.
  std::vector<pid_t> daemons() const;
  // … and of those that serve a folder inside it.
  std::vector<pid_t> daemons_inside() const;

 private:
  std::filesystem::path path_;
};

// Ids of processes whose command line (program first, never empty) is wanted.
std::vector<pid_t> processes_where(const std::function<bool(const std::vector<std::string>&)>& wanted);
// … that have all of `words` among their arguments.
std::vector<pid_t> processes_with(const std::vector<std::string>& words);
bool alive(pid_t pid);
// Until `condition` holds, at most `limit`.
template <class Condition>
bool eventually(Condition condition, Milliseconds limit = Milliseconds(20'000)) {
  const auto until = std::chrono::steady_clock::now() + limit * kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    struct timespec ms {
      0, 2'000'000
    };
    ::nanosleep(&ms, nullptr);
  }
  return true;
}

}  // namespace amk::testing
