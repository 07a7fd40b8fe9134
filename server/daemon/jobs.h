// Long calls. A job runs on a thread of its own and outlives the request that started it; its result can be fetched again
// by job id until it is evicted. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "server/protocol/request_context.h"

namespace amk {

enum class JobState { Queued, Running, Done, Failed, Cancelled, Lost };  // Lost: the daemon died while it ran
std::string_view to_string(JobState state);
std::optional<JobState> job_state_of(std::string_view name);
inline bool is_final(JobState state) { return state != JobState::Queued && state != JobState::Running; }

// What the job's function may say and must watch.
class JobContext {
 public:
  virtual ~JobContext() = default;
  virtual std::stop_token stop_token() const = 0;
  // How far the job is: shown to whoever waits and in snapshots. `detail` is any object (best so far, …).
  virtual void progress(double done, double total, std::string_view message, Json detail = Json::object()) = 0;
};

struct JobRequest {
  std::string kind;              // the tool's name
  Json args = Json::object();    // what defines the job: compared when a request_key is repeated
  std::string request_key = {};  // empty: always a new job (but see join_identical)
  bool join_identical = false;   // without a key: join a queued or running job of the same kind and args
  std::function<Result<Json>(JobContext&)> run;
};

struct JobSnapshot {
  std::string job_id, kind, request_key;
  Json args = Json::object();
  JobState state = JobState::Queued;
  double done = 0, total = -1;
  std::string message;
  Json detail = Json::object();
  std::int64_t created_us = 0, started_us = 0, finished_us = 0;  // wall clock, 0: not yet
  std::optional<Json> result;                                    // when Done
  std::optional<Error> error;                                    // when Failed, Cancelled or Lost
};
// {job_id, kind, state, progress: {done, total|null, fraction? (0 to 1), message, …detail}, result?, error?}
Json to_json(const JobSnapshot& job);

// Keeps jobs across restarts of the daemon. Called with no lock held, from the thread that made the change. Failures are the journal's
// own to log: a job never fails because it could not be written down.
class JobJournal {
 public:
  virtual ~JobJournal() = default;
  virtual void record(const JobSnapshot& job) = 0;     // on start and on every final state
  virtual void forget(const std::string& job_id) = 0;  // evicted
  virtual std::vector<JobSnapshot> load() = 0;         // once, at start; jobs that were not final become Lost
};

class JobManager {
 public:
  struct Options {
    int max_running = 4;
    int max_queued = 64;            // more: Unavailable
    int max_finished = 256;         // kept for re-fetching; the oldest are evicted
    int max_waiting = 64;           // at a time in wait(), each on a thread of the server's: the next ones are answered at once
    const Clock* clock = nullptr;   // null: the system's
    JobJournal* journal = nullptr;  // null: none
  };
  JobManager();
  explicit JobManager(Options options);
  ~JobManager();  // requests stop of every job and waits for them
  JobManager(const JobManager&) = delete;
  JobManager& operator=(const JobManager&) = delete;

  // Starts a job, or joins one: the same request_key with the same kind and args gives the same job, finished or not, unless it was
  // cancelled or lost or ended as Unavailable (then a new one takes its place); with other kind or args: Conflict.
  Result<JobSnapshot> start(JobRequest request);

  // Waits until the job is final, `wait_s` is over, or `stop` is requested; then its snapshot. Forwards the job's progress to `context`
  // (may be null). NotFound for an unknown id. Does not wait while max_waiting others do: who waits holds a thread that others' calls need.
  Result<JobSnapshot> wait(const std::string& job_id, double wait_s, mcp::RequestContext* context = nullptr);

  Result<JobSnapshot> get(const std::string& job_id) const;
  std::vector<JobSnapshot> list() const;  // newest first

  // Asks the job to stop; a queued one ends at once. A final one stays as it is. Returns the snapshot after the request.
  Result<JobSnapshot> cancel(const std::string& job_id);

  // start + wait: the job's own result (or error) if it is final within wait_s, else {job_id, state: "queued" or "running", progress}.
  // Cancelling the request leaves the job running. One that has not begun ends with it, unless it can be found again: by its request_key, or by an
  // equal call (join_identical).
  Result<Json> call(JobRequest request, double wait_s, mcp::RequestContext& context);

  int active() const;  // queued and running

 private:
  Result<JobSnapshot> cancel(const std::string& job_id, bool only_queued);
  struct Impl;
  static void run_queued(const std::shared_ptr<Impl>& impl);
  std::shared_ptr<Impl> impl_;
};

inline constexpr double kDefaultWaitS = 45;  // below the shortest limit that clients put on a call (60 s)

}  // namespace amk
