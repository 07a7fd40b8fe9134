#include "server/daemon/jobs.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "core/base/unexpected.h"
#include "server/protocol/random_id.h"

namespace amk {
namespace {

struct Job {
  JobSnapshot snapshot;
  std::function<Result<Json>(JobContext&)> run;
  std::stop_source stop;
  std::uint64_t changes = 0;          // waiters compare it
  std::vector<std::string> replaces;  // whose records hold its request_key: forgotten before its own is written
};
using JobPtr = std::shared_ptr<Job>;

// Whether who repeats the call wants this job's end, rather than another try: not when the job never came to one, nor when what it needed was missing
// (a GPU worker that was killed, a full disk).
bool is_answer(const JobSnapshot& job) {
  if (job.state == JobState::Cancelled || job.state == JobState::Lost) return false;
  return job.state != JobState::Failed || !job.error || job.error->kind != ErrorKind::Unavailable;
}

}  // namespace

std::string_view to_string(JobState state) {
  switch (state) {
    case JobState::Queued:
      return "queued";
    case JobState::Running:
      return "running";
    case JobState::Done:
      return "done";
    case JobState::Failed:
      return "failed";
    case JobState::Cancelled:
      return "cancelled";
    case JobState::Lost:
      return "lost";
  }
  return "lost";
}

std::optional<JobState> job_state_of(std::string_view name) {
  for (JobState s : {JobState::Queued, JobState::Running, JobState::Done, JobState::Failed, JobState::Cancelled, JobState::Lost})
    if (to_string(s) == name) return s;
  return std::nullopt;
}

Json to_json(const JobSnapshot& job) {
  Json progress = job.detail.is_object() ? job.detail : Json::object();
  progress["done"] = job.done;
  progress["total"] = job.total < 0 ? Json() : Json(job.total);
  progress["message"] = job.message;
  if (job.total > 0) progress["fraction"] = std::clamp(job.done / job.total, 0.0, 1.0);
  Json out = {{"job_id", job.job_id}, {"kind", job.kind}, {"state", to_string(job.state)}, {"progress", std::move(progress)}};
  if (job.result) out["result"] = *job.result;
  if (job.error) out["error"] = to_json(*job.error)["error"];
  return out;
}

struct JobManager::Impl {
  const Options options;
  const Clock& clock;
  mutable std::mutex mutex;
  std::condition_variable_any changed;
  std::map<std::string, JobPtr> jobs;         // by id
  std::map<std::string, std::string> by_key;  // request_key -> id
  std::deque<JobPtr> queue;
  std::deque<std::string> finished;  // ids, oldest first
  int running = 0, threads = 0;
  std::atomic<int> waiting{0};
  bool stopping = false;

  explicit Impl(Options o) : options(o), clock(o.clock ? *o.clock : system_clock()) {}

  void load() {
    if (!options.journal) return;
    for (JobSnapshot& s : options.journal->load()) {
      const bool lost = !is_final(s.state);
      if (lost) {
        s.state = JobState::Lost;
        s.finished_us = clock.wall_us();
        s.error = Error{ErrorKind::Unavailable, "the daemon ended while this job ran; start it again", {{"job_id", s.job_id}}};
        options.journal->record(s);
      }
      auto job = std::make_shared<Job>();
      job->snapshot = std::move(s);
      finished.push_back(job->snapshot.job_id);
      if (!job->snapshot.request_key.empty()) by_key[job->snapshot.request_key] = job->snapshot.job_id;
      jobs[job->snapshot.job_id] = std::move(job);
    }
  }

  void journal(const JobSnapshot& s) {
    if (options.journal) options.journal->record(s);
  }

  // Under the lock. Ids to forget in the journal, once the lock is released.
  std::vector<std::string> finish(Job& job, JobSnapshot ended) {
    job.snapshot = std::move(ended);
    job.run = nullptr;
    ++job.changes;
    finished.push_back(job.snapshot.job_id);
    std::vector<std::string> evicted;
    while (static_cast<int>(finished.size()) > options.max_finished)
      for (std::string& id : evict(finished.front())) evicted.push_back(std::move(id));
    changed.notify_all();
    return evicted;
  }

  // Under the lock: how a job ends that never began.
  JobSnapshot cancelled(const Job& job, std::string why) const {
    JobSnapshot s = job.snapshot;
    s.state = JobState::Cancelled;
    s.finished_us = clock.wall_us();
    s.error = Error{ErrorKind::Cancelled, std::move(why), {{"job_id", s.job_id}}};
    return s;
  }

  // Under the lock; a final job only. Its id, to forget in the journal once the lock is released.
  std::vector<std::string> evict(const std::string& final_id) {
    const std::string id = final_id;  // the argument may live in what is erased
    std::erase(finished, id);
    const auto it = jobs.find(id);
    if (const auto key = by_key.find(it->second->snapshot.request_key); key != by_key.end() && key->second == id) by_key.erase(key);
    jobs.erase(it);
    return {id};
  }

  void forget(const std::vector<std::string>& ids) {
    if (options.journal)
      for (const std::string& id : ids) options.journal->forget(id);
  }
};

namespace {

class Running final : public JobContext {
 public:
  Running(std::mutex& mutex, std::condition_variable_any& changed, Job& job) : mutex_(mutex), changed_(changed), job_(job) {}
  std::stop_token stop_token() const override { return job_.stop.get_token(); }
  void progress(double done, double total, std::string_view message, Json detail) override {
    std::lock_guard lock(mutex_);
    job_.snapshot.done = std::isfinite(done) ? done : 0;
    job_.snapshot.total = std::isfinite(total) ? total : -1;
    job_.snapshot.message = message;
    if (!detail.empty()) job_.snapshot.detail = std::move(detail);
    ++job_.changes;
    changed_.notify_all();
  }

 private:
  std::mutex& mutex_;
  std::condition_variable_any& changed_;
  Job& job_;
};

Result<Json> run_guarded(const std::function<Result<Json>(JobContext&)>& run, JobContext& context, const std::string& kind) {
  try {
    return run(context);
  } catch (const std::exception& e) {
    return unexpected_failure(kind, e);
  }
}

}  // namespace

JobManager::JobManager() : JobManager(Options()) {}
JobManager::JobManager(Options options) : impl_(std::make_shared<Impl>(options)) { impl_->load(); }

JobManager::~JobManager() {
  std::unique_lock lock(impl_->mutex);
  impl_->stopping = true;
  std::vector<JobSnapshot> ended;
  std::vector<std::string> replaced;
  for (const JobPtr& job : std::exchange(impl_->queue, {})) {
    for (std::string& id : std::exchange(job->replaces, {})) replaced.push_back(std::move(id));
    impl_->finish(*job, impl_->cancelled(*job, "the daemon ended before this job began"));
    ended.push_back(job->snapshot);
  }
  for (const auto& [id, job] : impl_->jobs) job->stop.request_stop();
  lock.unlock();
  impl_->forget(replaced);
  for (const JobSnapshot& s : ended) impl_->journal(s);
  lock.lock();
  impl_->changed.wait(lock, [&] { return impl_->threads == 0; });
}

void JobManager::run_queued(const std::shared_ptr<Impl>& impl) {
  // One thread serves one job after another while there are any; start() makes up to max_running of them.
  std::unique_lock lock(impl->mutex);
  while (!impl->queue.empty() && !impl->stopping) {
    const JobPtr job = impl->queue.front();
    impl->queue.pop_front();
    ++impl->running;
    job->snapshot.state = JobState::Running;
    job->snapshot.started_us = impl->clock.wall_us();
    ++job->changes;
    impl->changed.notify_all();
    const JobSnapshot begun = job->snapshot;
    auto run = std::move(job->run);
    const auto replaced = std::exchange(job->replaces, {});
    lock.unlock();

    impl->forget(replaced);
    impl->journal(begun);
    Running context(impl->mutex, impl->changed, *job);
    Result<Json> result = run_guarded(run, context, begun.kind);
    run = nullptr;  // what it captured may be large

    // Written down before anybody can see that it has ended: who repeats the call then finds a record that will not change.
    lock.lock();
    JobSnapshot ended = job->snapshot;
    lock.unlock();
    ended.state = JobState::Done;
    ended.finished_us = impl->clock.wall_us();
    if (result) {
      ended.result = *std::move(result);
    } else {
      ended.state = result.error().kind == ErrorKind::Cancelled ? JobState::Cancelled : JobState::Failed;
      ended.error = std::move(result).error();
    }
    impl->journal(ended);

    lock.lock();
    --impl->running;
    const auto evicted = impl->finish(*job, std::move(ended));
    lock.unlock();
    impl->forget(evicted);
    lock.lock();
  }
  --impl->threads;
  impl->changed.notify_all();
}

Result<JobSnapshot> JobManager::start(JobRequest request) {
  std::string replaces;  // a job that is no answer, whose place this one takes
  std::unique_lock lock(impl_->mutex);
  if (impl_->stopping) return fail(ErrorKind::Unavailable, "the daemon is shutting down");
  if (!request.request_key.empty()) {
    if (const auto known = impl_->by_key.find(request.request_key); known != impl_->by_key.end()) {
      const JobSnapshot& job = impl_->jobs.at(known->second)->snapshot;
      const bool same = job.kind == request.kind && job.args == request.args;
      if (same && is_answer(job)) return job;
      if (!same)
        return fail(
            ErrorKind::Conflict,
            "request_key " + request.request_key + " belongs to " + job.kind + " job " + job.job_id + ", which has other arguments; use another key",
            {{"field", "request_key"}, {"value", request.request_key}, {"job_id", job.job_id}});
      replaces = job.job_id;
    }
  } else if (request.join_identical) {
    for (const auto& [id, job] : impl_->jobs)
      if (!is_final(job->snapshot.state) && job->snapshot.kind == request.kind && job->snapshot.args == request.args) return job->snapshot;
  }
  if (static_cast<int>(impl_->queue.size()) >= impl_->options.max_queued)
    return fail(ErrorKind::Unavailable, std::to_string(impl_->queue.size()) + " jobs are waiting already; cancel some or try again later");
  if (impl_->threads < impl_->options.max_running) {
    // It finds the job below in the queue: it waits for the lock.
    ++impl_->threads;
    try {
      std::thread([impl = impl_] { run_queued(impl); }).detach();
    } catch (const std::exception&) {  // no thread to be had: those that there are take it
      if (--impl_->threads == 0) return fail(ErrorKind::Unavailable, "no memory for a thread; try again when other work on this machine has ended");
    }
  }

  auto job = std::make_shared<Job>();
  JobSnapshot& s = job->snapshot;
  s.job_id = "job-" + random_id();
  s.kind = std::move(request.kind);
  s.args = std::move(request.args);
  s.request_key = std::move(request.request_key);
  s.created_us = impl_->clock.wall_us();
  job->run = std::move(request.run);
  if (!replaces.empty()) job->replaces = impl_->evict(replaces);  // and its record, which holds the key
  impl_->jobs[s.job_id] = job;
  if (!s.request_key.empty()) impl_->by_key[s.request_key] = s.job_id;
  impl_->queue.push_back(job);
  return s;
}

Result<JobSnapshot> JobManager::wait(const std::string& job_id, double wait_s, mcp::RequestContext* context) {
  const double bounded = std::isfinite(wait_s) ? std::clamp(wait_s, 0.0, 3600.0) : 0.0;
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(bounded));
  const std::stop_token stop = context ? context->stop_token() : std::stop_token();
  std::unique_lock lock(impl_->mutex);
  const auto found = impl_->jobs.find(job_id);
  if (found == impl_->jobs.end())
    return fail(ErrorKind::NotFound, "no job " + job_id + "; results are kept for the last " + std::to_string(impl_->options.max_finished) + " jobs",
                {{"job_id", job_id}});
  const JobPtr job = found->second;  // stays valid when it is evicted meanwhile
  if (bounded > 0 && impl_->waiting >= impl_->options.max_waiting) return job->snapshot;
  struct Waiting {
    std::atomic<int>& count;
    explicit Waiting(std::atomic<int>& c) : count(c) { ++count; }
    ~Waiting() { --count; }
  } one(impl_->waiting);
  std::uint64_t seen = 0;
  bool spoken = false;
  while (!is_final(job->snapshot.state)) {
    if (context && job->snapshot.state == JobState::Running && (!spoken || seen != job->changes)) {
      const JobSnapshot s = job->snapshot;
      seen = job->changes;
      spoken = true;
      lock.unlock();
      context->progress(s.done, s.total, s.message);
      lock.lock();
      continue;
    }
    const std::uint64_t before = job->changes;
    const bool news = impl_->changed.wait_until(lock, stop, until, [&] { return job->changes != before; });
    if (!news) break;  // time is up, or nobody waits any more
  }
  return job->snapshot;
}

Result<JobSnapshot> JobManager::get(const std::string& job_id) const { return const_cast<JobManager*>(this)->wait(job_id, 0); }

std::vector<JobSnapshot> JobManager::list() const {
  std::vector<JobSnapshot> out;
  {
    std::lock_guard lock(impl_->mutex);
    for (const auto& [id, job] : impl_->jobs) out.push_back(job->snapshot);
  }
  std::sort(out.begin(), out.end(), [](const JobSnapshot& a, const JobSnapshot& b) {
    return a.created_us != b.created_us ? a.created_us > b.created_us : a.job_id < b.job_id;
  });
  return out;
}

Result<JobSnapshot> JobManager::cancel(const std::string& job_id) { return cancel(job_id, false); }

Result<JobSnapshot> JobManager::cancel(const std::string& job_id, bool only_queued) {
  std::unique_lock lock(impl_->mutex);
  const auto found = impl_->jobs.find(job_id);
  if (found == impl_->jobs.end()) return fail(ErrorKind::NotFound, "no job " + job_id, {{"job_id", job_id}});
  const JobPtr job = found->second;
  if (job->snapshot.state == JobState::Queued && std::erase(impl_->queue, job) > 0) {
    JobSnapshot ended = impl_->cancelled(*job, "cancelled before it began");
    const auto replaced = std::exchange(job->replaces, {});
    lock.unlock();
    impl_->forget(replaced);
    impl_->journal(ended);  // before it can be seen, as above
    lock.lock();
    const auto evicted = impl_->finish(*job, ended);
    lock.unlock();
    impl_->forget(evicted);
    return ended;
  }
  const JobSnapshot now = job->snapshot;
  lock.unlock();
  if (!only_queued) job->stop.request_stop();  // outside the lock: runs the callbacks of whoever watches the token
  return now;
}

Result<Json> JobManager::call(JobRequest request, double wait_s, mcp::RequestContext& context) {
  const bool can_be_found = !request.request_key.empty() || request.join_identical;
  AMK_TRY(started, start(std::move(request)));
  AMK_TRY(job, wait(started.job_id, wait_s, &context));
  // Its client does not want it any more, nobody else knows its name, and it has not begun: it would only keep others waiting.
  if (!can_be_found && context.stop_token().stop_requested()) {
    AMK_TRY(left, cancel(started.job_id, true));
    job = left;
  }
  if (job.state == JobState::Done) return *job.result;
  if (is_final(job.state)) return tl::unexpected<Error>(*job.error);
  return to_json(job);
}

int JobManager::active() const {
  std::lock_guard lock(impl_->mutex);
  return static_cast<int>(impl_->queue.size()) + impl_->running;
}

}  // namespace amk
