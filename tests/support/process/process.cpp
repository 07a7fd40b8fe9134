#include "tests/support/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "server/protocol/random_id.h"

extern char** environ;

namespace amk::testing {

namespace fs = std::filesystem;

namespace {

// Plain calls: a process may end while its files are read, which streams report by exceptions.
std::string read_small(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char buffer[4096];
  const ssize_t n = fd < 0 ? 0 : ::read(fd, buffer, sizeof buffer);
  if (fd >= 0) ::close(fd);
  return {buffer, n < 0 ? 0 : static_cast<std::size_t>(n)};
}

}  // namespace

Process::Process(std::vector<std::string> argv, std::vector<std::string> environment) {
  ::signal(SIGPIPE, SIG_IGN);
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  std::vector<char*> args, env;
  for (std::string& a : argv) args.push_back(a.data());
  args.push_back(nullptr);
  for (char** e = environ; *e; ++e) env.push_back(*e);
  for (std::string& e : environment) env.push_back(e.data());
  env.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::signal(SIGPIPE, SIG_DFL);
    ::dup2(in[0], 0);
    ::dup2(out[1], 1);
    ::execve(args[0], args.data(), env.data());
    ::_exit(127);
  }
  if (pid_ < 0) throw std::runtime_error("fork failed");
  ::close(in[0]);
  ::close(out[1]);
  in_ = in[1];
  out_ = out[0];
}

Process::~Process() {
  close_stdin();
  if (out_ >= 0) ::close(out_);
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

void Process::write(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(in_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<std::size_t>(n);
  }
}

void Process::close_stdin() {
  if (in_ >= 0) ::close(in_);
  in_ = -1;
}

void Process::close_stdout() {
  if (out_ >= 0) ::close(out_);
  out_ = -1;
}

std::optional<std::string> Process::read_line(Milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit * kPatience;
  for (;;) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::duration_cast<Milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd p{out_, POLLIN, 0};
    if (left <= 0 || ::poll(&p, 1, static_cast<int>(left)) <= 0) return std::nullopt;
    char chunk[65536];
    const ssize_t n = ::read(out_, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    buffer_.append(chunk, static_cast<std::size_t>(n));
  }
}

Json Process::reply(const Json& id, Milliseconds limit) {
  while (auto line = read_line(limit)) {
    Json m = Json::parse(*line, nullptr, false);
    if (!m.is_object()) throw std::runtime_error("stdout must carry messages only, not: " + line->substr(0, 500));
    if (m.contains("id") && m["id"] == id && !m.contains("method")) return m;
    others.push_back(std::move(m));
  }
  throw std::runtime_error("no reply to " + id.dump());
}

std::string Process::read_rest() {
  std::string all;
  while (auto line = read_line(Milliseconds(5'000))) all += *line + "\n";
  return all + std::exchange(buffer_, {});
}

void Process::kill(int signal) const { ::kill(pid_, signal); }

std::optional<Milliseconds> Process::wait(Milliseconds limit) {
  const auto begin = std::chrono::steady_clock::now();
  int status = 0;
  const bool gone = eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, limit);
  if (!gone) return std::nullopt;
  pid_ = -1;
  exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - begin);
}

Workspace::Workspace() : path_(fs::temp_directory_path() / ("amk-e2e-" + random_id())) {}

Workspace::~Workspace() {
  for (pid_t pid : daemons_inside()) ::kill(pid, SIGTERM);
  eventually([&] { return daemons_inside().empty(); }, Milliseconds(12'000));
  for (pid_t pid : daemons_inside()) ::kill(pid, SIGKILL);
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<pid_t> Workspace::daemons() const { return processes_with({"serve", path_.string()}); }

std::vector<pid_t> Workspace::daemons_inside() const {
  return processes_where([this](const std::vector<std::string>& words) {
    return std::count(words.begin(), words.end(), "serve") > 0 &&
           std::any_of(words.begin(), words.end(), [this](const std::string& w) { return w == path_ || w.starts_with(path_.string() + "/"); });
  });
}

std::vector<pid_t> processes_where(const std::function<bool(const std::vector<std::string>&)>& wanted) {
  std::vector<pid_t> out;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator("/proc", problem)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::istringstream line(read_small(entry.path() / "cmdline"));  // arguments, each ended by a NUL byte
    std::vector<std::string> words;
    for (std::string word; std::getline(line, word, '\0');) words.push_back(word);
    if (!words.empty() && wanted(words)) out.push_back(std::stoi(name));
  }
  return out;
}

std::vector<pid_t> processes_with(const std::vector<std::string>& wanted) {
  return processes_where([&](const std::vector<std::string>& words) {
    return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& w) { return std::count(words.begin() + 1, words.end(), w) > 0; });
  });
}

bool alive(pid_t pid) { return ::kill(pid, 0) == 0; }

}  // namespace amk::testing
