// Real processes over real sockets, with fake tools.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <thread>

#include "server/daemon/client.h"
#include "tests/support/process/process.h"

using namespace amk;
using namespace amk::testing;

namespace {

std::vector<std::string> shim(const Workspace& w) { return {FAKE_AMK, "mcp", "--workspace", w.path().string()}; }

Json initialize(Process& p, int id = 0) {
  const Json reply = p.request(
      "initialize", {{"protocolVersion", "2025-06-18"}, {"capabilities", Json::object()}, {"clientInfo", {{"name", "t"}, {"version", "1"}}}}, id);
  p.send({{"jsonrpc", "2.0"}, {"method", "notifications/initialized"}});
  return reply;
}
Json call(Process& p, int id, const std::string& tool, Json args = Json::object(), Json meta = Json::object()) {
  return p.request("tools/call", {{"name", tool}, {"arguments", std::move(args)}, {"_meta", std::move(meta)}}, id)["result"]["structuredContent"];
}

// Sends a call that takes so long, and returns when the daemon has said that it runs: a daemon that dies before has never heard of it.
void begin_slow(Process& p, int id, int seconds) {
  p.send({{"jsonrpc", "2.0"},
          {"id", id},
          {"method", "tools/call"},
          {"params", {{"name", "slow"}, {"arguments", {{"seconds", seconds}, {"steps", 20 * seconds}}}, {"_meta", {{"progressToken", id}}}}}});
  while (true) {
    const auto line = p.read_line();
    REQUIRE(line);
    if (line->find("notifications/progress") != std::string::npos) return;
  }
}

}  // namespace

TEST_CASE("a shim starts the daemon, speaks both eras, and two shims see one state") {
  Workspace w;
  Process a(shim(w)), b(shim(w));
  CHECK(initialize(a)["result"]["serverInfo"]["name"] == "fake");
  CHECK(b.request(
            "server/discover",
            {{"_meta", {{"io.modelcontextprotocol/protocolVersion", "2026-07-28"}, {"io.modelcontextprotocol/clientCapabilities", Json::object()}}}},
            1)["result"]["resultType"] == "complete");
  initialize(b, 2);
  CHECK(call(a, 10, "counter")["n"] == 1);
  CHECK(call(b, 10, "counter")["n"] == 2);
  CHECK(call(a, 11, "where")["pid"] == call(b, 11, "where")["pid"]);
  CHECK(w.daemons().size() == 1);
  // The daemon is nobody's child here, and in a session of its own.
  const pid_t d = w.daemons().at(0);
  CHECK(::getsid(d) != ::getsid(0));
}

TEST_CASE("requests that are piped in before the end of the stream are answered; nothing else is on stdout") {
  Workspace w;
  // A shim waits 300 ms for what is on its way when its client has hung up; a daemon that is slowed down takes longer to start.
  std::optional<Process> running;
  if (kPatience > 1) initialize(running.emplace(shim(w)));
  Process p(shim(w));
  p.write(
      "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\"}}\r\n\n"
      "nonsense\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"counter\"}}");
  p.close_stdin();
  const std::string out = p.read_rest();
  CHECK(p.wait(Milliseconds(5'000)));
  CHECK(p.exit_code == 0);
  int replies = 0, errors = 0;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const Json m = Json::parse(line, nullptr, false);
    REQUIRE(m.is_object());
    replies += m.contains("result");
    errors += m.contains("error");
  }
  CHECK(replies == 2);
  CHECK(errors == 1);
}

TEST_CASE("the shim is gone within 400 ms of EOF, SIGINT, SIGTERM, SIGHUP, a closed stdout; with a call in flight as well") {
  Workspace w;
  for (int way : {0, SIGINT, SIGTERM, SIGHUP, -1})
    for (bool in_flight : {false, true}) {
      CAPTURE(way);
      CAPTURE(in_flight);
      Process p(shim(w));
      initialize(p);
      if (in_flight) begin_slow(p, 5, 60);
      if (way == 0) p.close_stdin();
      if (way > 0) p.kill(way);
      if (way < 0) {
        p.close_stdout();
        p.send({{"jsonrpc", "2.0"}, {"id", 6}, {"method", "ping"}});
      }
      // The promise is 400 ms on an idle machine; a loaded test machine gets ten times that, a hang is still caught.
      CHECK(p.wait(Milliseconds(4'000)));
    }
}

TEST_CASE("the shim follows its parent, but not a parent's thread that ends") {
  Workspace w;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    // Starts the shim from a thread that ends at once, as hosts with thread pools do; then dies without a word.
    std::thread([&] {
      const pid_t child = ::fork();
      if (child == 0) {
        int in[2];
        if (::pipe(in) != 0) ::_exit(1);
        ::dup2(in[0], 0);  // never at its end: we hold the other side
        const std::string ws = w.path().string();
        ::execl(FAKE_AMK, FAKE_AMK, "mcp", "--workspace", ws.c_str(), nullptr);
        ::_exit(127);
      }
      [[maybe_unused]] const ssize_t n = ::write(ends[1], &child, sizeof child);
    }).join();
    ::pause();
    ::_exit(0);
  }
  pid_t child = 0;
  REQUIRE(::read(ends[0], &child, sizeof child) == sizeof child);
  CHECK(eventually([&] { return !w.daemons().empty(); }));
  std::this_thread::sleep_for(Milliseconds(300));
  CHECK(alive(child));
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  CHECK(eventually([&] { return processes_with({"mcp", w.path().string()}).empty(); }, Milliseconds(4'000)));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("the daemon dies: requests in flight are answered with an error, the next one finds a new daemon and the old handshake") {
  Workspace w;
  Process p(shim(w));
  initialize(p);
  p.request("logging/setLevel", {{"level", "error"}}, 1);
  begin_slow(p, 5, 60);
  const pid_t first = w.daemons().at(0);
  ::kill(first, SIGKILL);
  const Json lost = p.reply(5);
  CHECK(lost["error"]["code"] == -32603);
  CHECK(lost["error"]["data"]["retry"] == true);
  CHECK(call(p, 6, "counter")["n"] == 1);  // a new process
  CHECK(w.daemons().at(0) != first);
  p.others.clear();
  call(p, 7, "slow", {{"seconds", 0}});  // logs at notice: the level was set again
  CHECK(p.others.empty());
}

TEST_CASE("a race of many starts: one daemon, everybody served") {
  Workspace w;
  std::vector<std::unique_ptr<Process>> shims;
  for (int i = 0; i < 12; ++i) shims.push_back(std::make_unique<Process>(shim(w)));
  for (auto& s : shims) s->send({{"jsonrpc", "2.0"}, {"id", 0}, {"method", "initialize"}, {"params", {{"protocolVersion", "2025-06-18"}}}});
  for (auto& s : shims) CHECK(s->reply(0).contains("result"));
  CHECK(eventually([&] { return w.daemons().size() == 1; }));
}

TEST_CASE("fifty shims killed in every way leave nothing behind, and the daemon's state is untouched") {
  Workspace w;
  Process witness(shim(w));
  initialize(witness);
  CHECK(call(witness, 1, "counter")["n"] == 1);
  {
    std::vector<std::unique_ptr<Process>> shims;
    for (int i = 0; i < 50; ++i) shims.push_back(std::make_unique<Process>(shim(w)));
    for (std::size_t i = 0; i < shims.size(); ++i) {
      Process& s = *shims[i];
      if (i % 5 != 4) initialize(s);  // every fifth dies in the middle of its start
      if (i % 3 == 0)
        s.send({{"jsonrpc", "2.0"}, {"id", 9}, {"method", "tools/call"}, {"params", {{"name", "slow"}, {"arguments", {{"seconds", 60}}}}}});
    }
    const int ways[] = {SIGINT, SIGTERM, SIGHUP, SIGKILL, 0};
    for (std::size_t i = 0; i < shims.size(); ++i) {
      if (const int way = ways[i % 5])
        shims[i]->kill(way);
      else
        shims[i]->close_stdin();
    }
    for (auto& s : shims) CHECK(s->wait(Milliseconds(10'000)));
  }
  CHECK(processes_with({"mcp", w.path().string()}).size() == 1);  // the witness
  CHECK(call(witness, 2, "counter")["n"] == 2);
  CHECK(w.daemons().size() == 1);
}

TEST_CASE("the daemon exits by itself when it has neither clients nor jobs") {
  Workspace w;
  Process p(shim(w), {"FAKE_IDLE_S=0.2"});
  initialize(p);
  const std::string id = call(p, 1, "job", {{"seconds", 1.5}, {"wait_s", 0}})["job_id"];
  const pid_t d = w.daemons().at(0);
  p.close_stdin();
  CHECK(p.wait(Milliseconds(4'000)));
  std::this_thread::sleep_for(Milliseconds(600));
  CHECK(alive(d));  // the job goes on without anybody
  CHECK(eventually([&] { return w.daemons().empty(); }));
  CHECK_FALSE(std::filesystem::exists(w.path() / "daemon.sock"));
}

TEST_CASE("jobs outlive the shim that started them; request_key joins; progress reaches who waits; cancel works") {
  Workspace w;
  std::string id;
  {
    Process p(shim(w));
    initialize(p);
    id = call(p, 1, "job", {{"seconds", 1}, {"wait_s", 0}, {"request_key", "k"}})["job_id"];
    p.kill(SIGKILL);
    p.wait(Milliseconds(4'000));
  }
  Process p(shim(w));
  initialize(p);
  CHECK(call(p, 1, "job", {{"seconds", 1}, {"wait_s", 20}, {"request_key", "k"}}, {{"progressToken", "t"}})["slept_s"] == 1.0);
  CHECK(call(p, 2, "job_wait", {{"job_id", id}})["state"] == "done");
  const std::string second = call(p, 3, "job", {{"seconds", 600}, {"wait_s", 0}})["job_id"];
  CHECK(call(p, 4, "job_wait", {{"job_id", second}, {"cancel", true}, {"wait_s", 20}})["state"] == "cancelled");
}

TEST_CASE("a daemon that cannot start says why, to the client") {
  Workspace w;
  Process p(shim(w), {"FAKE_BROKEN=1"});
  const Json reply = p.request("initialize", {{"protocolVersion", "2025-06-18"}}, 0);
  CHECK(reply["error"]["message"].get<std::string>().find("the store is damaged") != std::string::npos);
}

TEST_CASE("a stale socket and a stale lock file are no obstacle; a long workspace path neither") {
  Workspace w;
  std::filesystem::create_directories(w.path());
  { std::ofstream(w.path() / "daemon.sock") << "x"; }
  { std::ofstream(w.path() / "daemon.lock") << "x"; }
  Process p(shim(w));
  CHECK(initialize(p).contains("result"));
  const auto deep = w.path() / std::string(120, 'd');
  Process q({FAKE_AMK, "mcp", "--workspace", deep.string()});
  CHECK(initialize(q).contains("result"));
}

TEST_CASE("a daemon whose workspace is deleted or moved away ends, busy or not, and leaves the socket of one that took its place") {
  Workspace w;
  const auto folder = w.path() / "ws", aside = w.path() / "aside";
  for (bool moved : {false, true}) {
    CAPTURE(moved);
    Process p({FAKE_AMK, "mcp", "--workspace", folder.string()});
    initialize(p);
    CHECK(call(p, 1, "job", {{"seconds", 600}, {"wait_s", 0}}).contains("job_id"));  // it would stay for ten minutes
    const pid_t first = call(p, 2, "where")["pid"];
    if (moved)
      std::filesystem::rename(folder, aside);
    else
      std::filesystem::remove_all(folder);
    // Another workspace at the same path, with a daemon of its own, before the first one has noticed or after.
    Process q({FAKE_AMK, "mcp", "--workspace", folder.string()});
    initialize(q);
    CHECK(call(q, 1, "where")["pid"] != first);
    CHECK(eventually([&] { return !alive(first); }));
    CHECK(std::filesystem::exists(folder / "daemon.sock"));
    CHECK(call(q, 2, "counter")["n"] == 1);
    ::kill(call(q, 3, "where")["pid"].get<pid_t>(), SIGTERM);
    CHECK(eventually([&] { return w.daemons_inside().empty(); }));
  }
  // Without its store alone: what it acknowledged from now on would be gone with it. The next call finds a new one.
  for (const bool cut : {false, true}) {
    CAPTURE(cut);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "store.sqlite") << "a store";
    Process p({FAKE_AMK, "mcp", "--workspace", folder.string()});
    initialize(p);
    const pid_t first = call(p, 1, "where")["pid"];
    if (cut)
      std::filesystem::resize_file(folder / "store.sqlite", 3);
    else
      std::filesystem::rename(folder / "store.sqlite", folder / "store.moved");
    CHECK(eventually([&] { return !alive(first); }));
    CHECK(call(p, 2, "where")["pid"] != first);
    ::kill(call(p, 3, "where")["pid"].get<pid_t>(), SIGTERM);
    CHECK(eventually([&] { return w.daemons_inside().empty(); }));
  }
  // A long path's socket lies elsewhere; it is taken away all the same.
  const auto deep = w.path() / std::string(120, 'd');
  Process p({FAKE_AMK, "mcp", "--workspace", deep.string()});
  initialize(p);
  const auto socket = daemon::prepare_paths(deep)->socket;
  CHECK(std::filesystem::exists(socket));
  std::filesystem::remove_all(deep);
  CHECK(eventually([&] { return w.daemons_inside().empty(); }));
  CHECK_FALSE(std::filesystem::exists(socket));
}

TEST_CASE("SIGTERM ends the daemon and its socket; running calls are cut, not waited for") {
  Workspace w;
  Process p(shim(w));
  initialize(p);
  begin_slow(p, 5, 600);
  ::kill(w.daemons().at(0), SIGTERM);
  CHECK(p.reply(5).contains("error"));
  CHECK(eventually([&] { return w.daemons().empty(); }, Milliseconds(9'000)));
  CHECK_FALSE(std::filesystem::exists(w.path() / "daemon.sock"));
}

TEST_CASE("another user's or a raw connection: a greeting first, then MCP; the socket is private") {
  Workspace w;
  Process p(shim(w));
  initialize(p);
  struct stat info {};
  REQUIRE(::stat((w.path() / "daemon.sock").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  const auto paths = daemon::prepare_paths(w.path());
  auto fd = daemon::connect_only(*paths);
  REQUIRE(fd);
  auto raw = mcp::fd_transport(*fd, *fd);
  raw->send(R"({"jsonrpc":"2.0","id":1,"method":"ping"})");
  CHECK(Json::parse(**raw->receive())["id"] == 1);
}

TEST_CASE("who closes only his sending side gets what he asked for, then the end; who hangs up is forgotten") {
  Workspace w;
  Process p(shim(w));
  initialize(p);
  const auto paths = daemon::prepare_paths(w.path());
  const std::string slow =
      R"({"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow","arguments":{"seconds":0.2},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}})";
  // The last line lacks its end, as what a script prints may.
  for (const std::string& text : {slow + "\n" + slow.substr(0, 22) + "8" + slow.substr(23), std::string(), slow.substr(0, 40)}) {
    auto fd = daemon::connect_only(*paths);
    REQUIRE(fd);
    REQUIRE(::send(*fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
    ::shutdown(*fd, SHUT_WR);
    auto raw = mcp::fd_transport(*fd, *fd);
    std::vector<Json> told;
    while (auto line = *raw->receive()) told.push_back(Json::parse(*line));
    if (text.size() > 100) {
      REQUIRE(told.size() == 2);
      for (const Json& m : told) CHECK(m["result"]["structuredContent"]["slept_s"] == 0.2);
      CHECK(told[0]["id"].get<int>() + told[1]["id"].get<int>() == 15);
    } else {
      CHECK(told.size() == (text.empty() ? 0u : 1u));
    }
  }
  auto gone = daemon::connect_only(*paths);
  REQUIRE(gone);
  const std::string long_one = slow.substr(0, slow.find("0.2")) + "600" + slow.substr(slow.find("0.2") + 3) + "\n";
  REQUIRE(::send(*gone, long_one.data(), long_one.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(long_one.size()));
  ::shutdown(*gone, SHUT_WR);
  const auto clients = [&] { return (*daemon::control(*paths, {{"info", true}}))["clients"].get<int>(); };
  CHECK(eventually([&] { return clients() == 3; }));  // the shim, this one, who asks
  ::close(*gone);
  CHECK(eventually([&] { return clients() == 2; }));
  CHECK(call(p, 9, "counter")["n"] == 1);
}

TEST_CASE("the CLI's client: results, errors with kind and data, progress, cancellation, a daemon that left between calls") {
  Workspace w;
  const auto paths = *daemon::prepare_paths(w.path());
  auto client = daemon::daemon_client(paths, {{FAKE_AMK, "serve", "--workspace", paths.workspace.string()}});
  CHECK((*client->call("echo", {{"text", "hi"}}))["text"] == "hi");
  CHECK((*client->call("where", Json::object()))["cwd"] == std::filesystem::current_path().string());
  const Error rejected = client->call("fails", Json::object()).error();
  CHECK(rejected.kind == ErrorKind::Rejected);
  CHECK(rejected.data == Json{{"witness", {{"task", 7}}}});
  CHECK(client->call("echo", {{"txt", 1}}).error().kind == ErrorKind::InvalidArgument);
  CHECK_FALSE(client->call("no_such", Json::object()));
  CHECK(*client->read_resource("fake://static") == "fixed");
  CHECK_FALSE(client->read_resource("fake://no"));
  int steps = 0;
  CHECK(client->call("slow", {{"seconds", 0.3}, {"steps", 3}}, [&](const daemon::Progress& p) { steps += p.total == 3; }));
  CHECK(steps == 3);
  std::stop_source stop;
  CHECK(client
            ->call(
                "slow", {{"seconds", 600}, {"steps", 600}}, [&](const daemon::Progress&) { stop.request_stop(); }, stop.get_token())
            .error()
            .kind == ErrorKind::Cancelled);
  CHECK((*client->call("counter", Json::object()))["n"] == 1);
  ::kill(w.daemons().at(0), SIGKILL);
  eventually([&] { return w.daemons().empty(); });
  // A call that meets the dying connection may be answered with an error, since it might have run; the next one finds a new daemon.
  Result<Json> again = client->call("counter", Json::object());
  if (!again) again = client->call("counter", Json::object());
  REQUIRE(again);
  CHECK((*again)["n"] == 1);
}

TEST_CASE("large messages pass through the shim unharmed; over-long ones are refused and the stream survives") {
  Workspace w;
  Process p(shim(w));
  initialize(p);
  const std::string text(3'000'000, 'y');
  CHECK(call(p, 1, "echo", {{"text", text}})["text"] == text);
  CHECK(call(p, 2, "big", {{"bytes", 5'000'000}})["text"].get<std::string>().size() == 5'000'000);
  p.write(std::string(17u << 20, 'z') + "\n");
  const auto refused = p.read_line();
  REQUIRE(refused);
  CHECK(Json::parse(*refused)["error"]["code"] == -32700);
  CHECK(call(p, 3, "counter")["n"] == 1);
}

TEST_CASE("large messages of many at once are not kept without end: who goes on is hung up on, small ones and later ones are served") {
  Workspace w;
  Process p(shim(w));
  initialize(p);
  const auto paths = daemon::prepare_paths(w.path());
  const std::string large(15u << 20, 'x');  // of a line that does not end
  std::vector<int> fds;
  int dropped = 0;
  for (int i = 0; i < 12 && dropped == 0; ++i) {
    auto fd = daemon::connect_only(*paths);
    REQUIRE(fd);
    fds.push_back(*fd);
    for (std::size_t at = 0; at < large.size() && dropped == 0;) {
      const ssize_t n = ::send(*fd, large.data() + at, large.size() - at, MSG_NOSIGNAL);
      if (n <= 0) ++dropped;
      at += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
    }
  }
  CHECK(fds.size() == 9);  // eight are 120 MB, and the sum 128
  CHECK(dropped == 1);
  CHECK(call(p, 1, "counter")["n"] == 1);
  for (const int fd : fds) ::close(fd);
  CHECK(eventually([&] { return (*daemon::control(*paths, {{"info", true}}))["clients"] == 2; }));
  CHECK(call(p, 2, "echo", {{"text", std::string(3u << 20, 'y')}})["text"].get<std::string>().size() == 3u << 20);
}

TEST_CASE("a daemon of another build makes room when it is idle, and stays while it serves others") {
  Workspace w;
  // The same program with one byte appended is another build that behaves alike.
  const auto other = w.path() / "other_amk";
  std::filesystem::create_directories(w.path());
  std::filesystem::copy_file(FAKE_AMK, other);
  { std::ofstream(other, std::ios::app) << '\n'; }
  pid_t first = 0;
  {
    Process p({other.string(), "mcp", "--workspace", w.path().string()});
    initialize(p);
    first = w.daemons().at(0);
    Process q(shim(w));
    initialize(q);
    CHECK(call(q, 1, "where")["pid"] == first);
  }
  CHECK(eventually([&] { return processes_with({"mcp", w.path().string()}).empty(); }));
  Process q(shim(w));
  initialize(q);
  CHECK(call(q, 1, "where")["pid"] != first);
}
