#include "server/daemon/jobs.h"

#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/no_threads.h"

using namespace amk;
using amk::testing::NoThreads;

namespace {

// A job that runs until it is opened or stopped.
class Gate {
 public:
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  std::function<Result<Json>(JobContext&)> job(Json result) {
    return [this, result](JobContext& c) -> Result<Json> {
      ++started;
      std::unique_lock lock(mutex_);
      changed_.wait(lock, c.stop_token(), [&] { return open_; });
      if (c.stop_token().stop_requested()) return fail(ErrorKind::Cancelled, "stopped");
      return result;
    };
  }
  std::atomic<int> started{0};

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool open_ = false;
};

std::function<Result<Json>(JobContext&)> gives(Json v) {
  return [v](JobContext&) -> Result<Json> { return v; };
}

class FakeJournal final : public JobJournal {
 public:
  void record(const JobSnapshot& job) override {
    std::lock_guard lock(mutex);
    // As in the store: a key belongs to one record.
    for (const auto& [id, other] : rows) CHECK((id == job.job_id || job.request_key.empty() || other.request_key != job.request_key));
    rows[job.job_id] = job;
    states.push_back(job.state);
  }
  void forget(const std::string& id) override {
    std::lock_guard lock(mutex);
    rows.erase(id);
  }
  std::vector<JobSnapshot> load() override {
    std::vector<JobSnapshot> out;
    for (const auto& [id, s] : rows) out.push_back(s);
    return out;
  }
  std::mutex mutex;
  std::map<std::string, JobSnapshot> rows;
  std::vector<JobState> states;
};

class Listener final : public mcp::NullContext {
 public:
  using NullContext::NullContext;
  void progress(double done, double, std::string_view message) override { seen.emplace_back(done, std::string(message)); }
  bool wants_progress() const override { return true; }
  std::vector<std::pair<double, std::string>> seen;
};

}  // namespace

TEST_CASE("call: the result itself if it is there in time, else a running job that can be fetched later") {
  Gate gate;  // here and below: before the manager, whose end waits for what its jobs use
  JobManager jobs;
  mcp::NullContext context;
  CHECK(*jobs.call({.kind = "k", .run = gives(7)}, 20, context) == 7);

  const Json running = *jobs.call({.kind = "k", .run = gate.job({{"x", 1}})}, 0.01, context);
  CHECK((running["state"] == "running" || running["state"] == "queued"));
  CHECK(running["progress"].is_object());
  const std::string id = running["job_id"];
  CHECK(jobs.active() == 1);
  gate.open();
  CHECK(jobs.wait(id, 20)->result == Json{{"x", 1}});
  CHECK(to_json(*jobs.get(id))["result"] == Json{{"x", 1}});  // again and again
  CHECK(jobs.active() == 0);
  CHECK(jobs.get("job-none").error().kind == ErrorKind::NotFound);
}

TEST_CASE("errors and exceptions of a job reach who waits, with their kind and data") {
  JobManager jobs;
  mcp::NullContext context;
  auto failed = jobs.call({.kind = "k", .run = [](JobContext&) -> Result<Json> { return fail(ErrorKind::Rejected, "no", {{"w", 1}}); }}, 20, context);
  CHECK(failed.error().kind == ErrorKind::Rejected);
  CHECK(failed.error().data == Json{{"w", 1}});
  auto thrown = jobs.call({.kind = "k", .run = [](JobContext&) -> Result<Json> { throw std::runtime_error("boom"); }}, 20, context);
  CHECK(thrown.error().message == "k failed unexpectedly: boom");
}

TEST_CASE("request_key: the same call joins, a finished one answers again, another call with it is a conflict, a cancelled one starts anew") {
  Gate gate, closed;
  JobManager jobs;
  auto start = [&](Json args, const std::string& key) {
    return jobs.start({.kind = "k", .args = std::move(args), .request_key = key, .run = gate.job(1)});
  };
  const std::string first = start({{"a", 1}}, "key")->job_id;
  CHECK(start({{"a", 1}}, "key")->job_id == first);
  CHECK(start({{"a", 2}}, "key").error().kind == ErrorKind::Conflict);
  CHECK(start({{"a", 1}}, "")->job_id != first);
  CHECK(start({{"a", 1}}, "other")->job_id != first);
  gate.open();
  CHECK(jobs.wait(first, 20)->state == JobState::Done);
  CHECK(start({{"a", 1}}, "key")->result == 1);

  const std::string cancelled = jobs.start({.kind = "k", .request_key = "c", .run = closed.job(1)})->job_id;
  jobs.cancel(cancelled);
  CHECK(jobs.wait(cancelled, 20)->state == JobState::Cancelled);
  const std::string again = jobs.start({.kind = "k", .request_key = "c", .run = gives(2)})->job_id;
  CHECK(again != cancelled);
  CHECK(jobs.wait(again, 20)->result == 2);
  CHECK_FALSE(jobs.get(cancelled));
}

TEST_CASE("join_identical joins what runs, not what is finished") {
  Gate gate;
  JobManager jobs;
  auto start = [&] { return jobs.start({.kind = "k", .args = {{"a", 1}}, .join_identical = true, .run = gate.job(1)})->job_id; };
  const std::string first = start();
  CHECK(start() == first);
  gate.open();
  jobs.wait(first, 20);
  CHECK(start() != first);
}

TEST_CASE("cancel: a queued job ends at once, a running one is asked, a final one stays") {
  Gate gate;
  JobManager jobs({.max_running = 1});
  const std::string running = jobs.start({.kind = "k", .run = gate.job(1)})->job_id;
  while (gate.started == 0) std::this_thread::yield();
  const std::string queued = jobs.start({.kind = "k", .run = gate.job(2)})->job_id;
  CHECK(jobs.cancel(queued)->state == JobState::Cancelled);
  CHECK(gate.started == 1);
  jobs.cancel(running);
  CHECK(jobs.wait(running, 20)->state == JobState::Cancelled);
  CHECK(jobs.wait(running, 20)->error->kind == ErrorKind::Cancelled);
  CHECK(jobs.cancel(running)->state == JobState::Cancelled);
  CHECK_FALSE(jobs.cancel("job-none"));
}

TEST_CASE("bounds: running, queued, kept") {
  Gate gate;
  JobManager jobs({.max_running = 2, .max_queued = 3, .max_finished = 4});
  std::vector<std::string> ids;
  for (int i = 0; i < 2; ++i) ids.push_back(jobs.start({.kind = "k", .run = gate.job(i)})->job_id);
  while (gate.started < 2) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) ids.push_back(jobs.start({.kind = "k", .run = gate.job(i)})->job_id);
  CHECK(jobs.start({.kind = "k", .run = gate.job(9)}).error().kind == ErrorKind::Unavailable);
  CHECK(gate.started == 2);
  gate.open();
  for (const std::string& id : ids)
    if (auto s = jobs.wait(id, 20)) CHECK(s->state == JobState::Done);
  CHECK(jobs.list().size() == 4);  // the oldest of five is forgotten
}

TEST_CASE("a job that cannot begin leaves nothing behind: neither where no thread is to be had, nor where too many wait") {
  Gate gate;
  JobManager jobs({.max_running = 1, .max_queued = 1});
  const auto start = [&](const char* key, std::function<Result<Json>(JobContext&)> run) {
    return jobs.start({.kind = "k", .request_key = key, .run = std::move(run)});
  };
  for (int i = 0; i < 3; ++i) {  // more often than jobs run at a time
    const NoThreads none;
    CHECK(start("key", gives(1)).error().kind == ErrorKind::Unavailable);
    CHECK(jobs.list().empty());
    CHECK(jobs.active() == 0);
  }
  CHECK(jobs.wait(start("key", gives(1))->job_id, 60)->result == 1);

  const std::string running = start("running", gate.job(1))->job_id;
  while (gate.started == 0) std::this_thread::yield();
  const std::string cancelled = start("again", gives(2))->job_id;
  jobs.cancel(cancelled);
  {
    const NoThreads none;  // whoever runs takes it
    CHECK(start("waiting", gives(3)));
  }
  // What a refused call would have taken the place of can still be asked for.
  CHECK(start("again", gives(2)).error().kind == ErrorKind::Unavailable);
  CHECK(jobs.get(cancelled)->state == JobState::Cancelled);
  gate.open();
  CHECK(jobs.wait(running, 60)->state == JobState::Done);
  CHECK(jobs.wait(start("waiting", gives(3))->job_id, 60)->result == 3);
}

TEST_CASE("of many who wait as many do as may; the others are answered at once, and nobody's thread is lost") {
  Gate gate;
  JobManager jobs({.max_waiting = 3});
  const std::string id = jobs.start({.kind = "k", .run = gate.job(7)})->job_id;
  std::atomic<int> running{0}, done{0};
  std::vector<std::jthread> callers;
  for (int i = 0; i < 12; ++i)
    callers.emplace_back([&] {
      const auto s = jobs.wait(id, 60);
      ++(s->state == JobState::Done ? done : running);
    });
  while (running < 9) std::this_thread::yield();  // nine of twelve need not wait for the job's end
  CHECK(done == 0);
  CHECK(is_final(jobs.get(id)->state) == false);
  gate.open();
  callers.clear();
  CHECK(done == 3);
  CHECK(running == 9);
  CHECK(jobs.wait(jobs.start({.kind = "k", .run = gives(1)})->job_id, 60)->state == JobState::Done);  // their places are free again
}

TEST_CASE("wait forwards progress, ends when the request is cancelled, and leaves the job running") {
  std::stop_source stop;
  Listener listener(stop.get_token());
  Gate gate;
  JobManager jobs;
  const std::string id = jobs.start({.kind = "k",
                                     .run = [&](JobContext& c) -> Result<Json> {
                                       c.progress(3, 10, "three", {{"best", 5}});
                                       return gate.job(1)(c);
                                     }})
                             ->job_id;
  std::thread canceller([&] {
    while (gate.started == 0) std::this_thread::yield();
    stop.request_stop();
  });
  const JobSnapshot s = *jobs.wait(id, 3600, &listener);
  canceller.join();
  CHECK(s.state == JobState::Running);
  CHECK(to_json(s)["progress"] == Json{{"done", 3.0}, {"total", 10.0}, {"fraction", 0.3}, {"message", "three"}, {"best", 5}});
  CHECK(jobs.active() == 1);
  Listener second;
  gate.open();
  CHECK(jobs.wait(id, 20, &second)->state == JobState::Done);
}

TEST_CASE("a call that is cancelled takes its job along where it has not begun and nobody can come back for it") {
  Gate gate;
  JobManager jobs({.max_running = 1});
  const std::string running = jobs.start({.kind = "k", .run = gate.job(1)})->job_id;
  while (gate.started == 0) std::this_thread::yield();
  const auto call = [&](const std::string& key, bool join) {
    std::stop_source stop;
    stop.request_stop();
    Listener listener(stop.get_token());
    JobRequest request;
    request.kind = "k";
    request.request_key = key;
    request.join_identical = join;
    request.args = {{"of", key + (join ? "&" : "")}};
    request.run = gate.job(2);
    return jobs.call(std::move(request), 3600, listener);
  };
  for (int i = 0; i < 200; ++i) {  // more than may wait
    const auto left = call("", false);
    REQUIRE_FALSE(left);
    CHECK(left.error().kind == ErrorKind::Cancelled);
  }
  CHECK(jobs.active() == 1);
  CHECK(call("mine", false).value().at("state") == "queued");
  CHECK(call("", true).value().at("state") == "queued");
  CHECK(jobs.active() == 3);
  gate.open();
  CHECK(jobs.wait(running, 20)->state == JobState::Done);
}

TEST_CASE("request_key: a job that ended because something was missing is no answer; a refusal is one; records follow") {
  FakeJournal journal;
  ErrorKind kind = ErrorKind::Unavailable;
  int runs = 0;
  JobManager jobs({.journal = &journal});
  const auto start = [&] {
    return jobs.start({.kind = "k", .request_key = "key", .run = [&](JobContext&) -> Result<Json> {
                         ++runs;
                         if (runs < 3) return fail(kind, "the GPU worker is gone");
                         return Json(runs);
                       }});
  };
  const std::string first = start()->job_id;
  CHECK(jobs.wait(first, 20)->error->kind == ErrorKind::Unavailable);
  const std::string second = start()->job_id;
  CHECK(second != first);
  CHECK(jobs.wait(second, 20)->state == JobState::Failed);
  CHECK_FALSE(jobs.get(first));
  const std::string third = start()->job_id;
  CHECK(jobs.wait(third, 20)->result == 3);
  CHECK(start()->job_id == third);
  CHECK(runs == 3);
  // A restart knows the same.
  JobManager later({.journal = &journal});
  CHECK(later.start({.kind = "k", .request_key = "key", .run = gives(9)})->job_id == third);

  kind = ErrorKind::Rejected;
  runs = 0;
  const auto refused = [&] {
    return jobs.start({.kind = "k", .request_key = "no", .run = [&](JobContext&) -> Result<Json> {
                         ++runs;
                         return fail(kind, "no such schedule");
                       }});
  };
  const std::string no = refused()->job_id;
  CHECK(jobs.wait(no, 20)->state == JobState::Failed);
  CHECK(refused()->job_id == no);
  CHECK(runs == 1);
}

TEST_CASE("the journal hears of starts and ends; after a restart results are there and unfinished jobs are lost") {
  FakeJournal journal;
  std::string done, lost;
  {
    JobManager jobs({.journal = &journal});
    done = jobs.start({.kind = "k", .args = {{"a", 1}}, .request_key = "key", .run = gives({{"v", 1}})})->job_id;
    jobs.wait(done, 20);
  }
  CHECK(journal.states == std::vector<JobState>{JobState::Running, JobState::Done});
  JobSnapshot half;
  half.job_id = lost = "job-half";
  half.kind = "k";
  half.request_key = "lostkey";
  half.state = JobState::Running;
  journal.rows[lost] = half;

  JobManager jobs({.journal = &journal});
  CHECK(jobs.get(done)->result == Json{{"v", 1}});
  CHECK(jobs.start({.kind = "k", .args = {{"a", 1}}, .request_key = "key", .run = gives(2)})->job_id == done);
  CHECK(jobs.get(lost)->state == JobState::Lost);
  CHECK(jobs.get(lost)->error->kind == ErrorKind::Unavailable);
  CHECK(journal.rows[lost].state == JobState::Lost);
  // A lost job is no answer: not now …
  FakeJournal same;
  same.rows[lost] = half;
  JobManager now({.journal = &same});
  CHECK(now.start({.kind = "k", .request_key = "lostkey", .run = gives(2)})->job_id != lost);
  // … nor after one more restart, when its record says that it was lost.
  JobManager later({.journal = &journal});
  CHECK(later.get(lost)->state == JobState::Lost);
  const std::string anew = later.start({.kind = "k", .request_key = "lostkey", .run = gives(2)})->job_id;
  CHECK(anew != lost);
  CHECK(later.wait(anew, 20)->result == 2);
}

TEST_CASE("the manager's end stops running jobs and answers queued ones") {
  FakeJournal journal;
  Gate gate;
  {
    JobManager jobs({.max_running = 1, .journal = &journal});
    jobs.start({.kind = "k", .run = gate.job(1)});
    while (gate.started == 0) std::this_thread::yield();
    jobs.start({.kind = "k", .run = gate.job(2)});
  }
  CHECK(gate.started == 1);
  for (const auto& [id, s] : journal.rows) CHECK(s.state == JobState::Cancelled);
}
