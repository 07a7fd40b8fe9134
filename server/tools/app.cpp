#include "server/tools/app.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "core/base/memory.h"
#include "core/base/resources.h"
#include "orchestrator/service/local_judge.h"
#include "orchestrator/store/job_records.h"
#include "server/daemon/error_json.h"
#include "server/daemon/log.h"

namespace amk {
namespace {

// Jobs written to the store, so that results survive the daemon.
class StoreJournal final : public JobJournal {
 public:
  explicit StoreJournal(Store& store) : records_(store) {}

  void record(const JobSnapshot& job) override {
    Json document = to_json(job);
    document["args"] = job.args;
    document["created_us"] = job.created_us;
    document["started_us"] = job.started_us;
    document["finished_us"] = job.finished_us;
    if (auto done = records_.put({job.job_id, job.kind, job.request_key, is_final(job.state), document, 0}); !done)
      daemon::log_line("warning", "job " + job.job_id + " could not be written down: " + done.error().message);
  }
  void forget(const std::string& job_id) override {
    if (auto done = records_.forget(job_id); !done) daemon::log_line("warning", "job " + job_id + ": " + done.error().message);
  }
  std::vector<JobSnapshot> load() override {
    std::vector<JobSnapshot> out;
    auto records = records_.load();
    if (!records) {
      daemon::log_line("warning", "jobs could not be read: " + records.error().message);
      return out;
    }
    for (const JobRecord& r : *records) out.push_back(snapshot_of(r));
    return out;
  }

 private:
  static JobSnapshot snapshot_of(const JobRecord& r) {
    JobSnapshot job;
    job.job_id = r.job_id;
    job.kind = r.kind;
    job.request_key = r.request_key;
    const Json& d = r.document;
    job.args = d.value("args", Json::object());
    job.created_us = d.value("created_us", std::int64_t{0});
    job.started_us = d.value("started_us", std::int64_t{0});
    job.finished_us = d.value("finished_us", std::int64_t{0});
    const std::string state = d.value("state", "");
    for (JobState s : {JobState::Queued, JobState::Running, JobState::Done, JobState::Failed, JobState::Cancelled, JobState::Lost})
      if (to_string(s) == state) job.state = s;
    if (d.contains("result")) job.result = d["result"];
    if (d.contains("error") && d["error"].is_object()) job.error = daemon::error_of(d["error"]).value();
    return job;
  }
  JobRecords records_;
};

// Looks for leases that ran out, now and then, on a thread of its own: a store that waits for its disk must not keep the daemon's sockets waiting.
// Gives back the memory that searches have left, too.
class Tender {
 public:
  Tender(CampaignService& campaigns, std::chrono::milliseconds every)
      : thread_([&campaigns, every](const std::stop_token& stop) { tend(campaigns, every, stop); }) {}

 private:
  static void tend(CampaignService& campaigns, std::chrono::milliseconds every, const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    bool failing = false;
    while (!wake.wait_for(lock, stop, every, [&] { return stop.stop_requested(); })) {
      const auto released = campaigns.expire_leases();
      if (released && *released > 0) daemon::log_line("warning", std::to_string(*released) + " experiments lost their worker");
      if (!released && !failing) daemon::log_line("warning", "leases could not be looked at: " + released.error().message);
      failing = !released;
      give_back_memory();
    }
  }
  std::jthread thread_;
};

}  // namespace

struct App::Impl {
  std::unique_ptr<Store> store;
  std::unique_ptr<Judge> judge;
  std::unique_ptr<Service> service;
  std::unique_ptr<StoreJournal> journal;
  std::unique_ptr<JobManager> jobs;  // its jobs use all of the above
  std::optional<Tender> tender;      // last: uses the service
};

App::App() : impl_(std::make_unique<Impl>()) {}
App::~App() = default;

Result<std::shared_ptr<App>> App::open(const AppOptions& options) {
  AMK_TRY(resources, find_resources());
  std::shared_ptr<App> app(new App());
  Impl& impl = *app->impl_;
  StoreOptions store_options;
  store_options.workspace = options.workspace;
  if (options.clock != nullptr) store_options.clock = options.clock;
  AMK_TRY(store, Store::open(store_options));
  impl.store = std::move(store);
  LocalJudgeOptions judge_options;
  judge_options.config = resources.config();
  judge_options.cache = default_cache_folder();
  judge_options.worker = {"/proc/self/exe", "worker", "--cache", judge_options.cache.string()};
  judge_options.next_fault = options.next_fault;
  impl.judge = options.make_judge ? options.make_judge() : std::make_unique<LocalJudge>(std::move(judge_options));
  AMK_TRY(service, Service::create({options.workspace, resources.config() / "gpus", version()}, *impl.store, *impl.judge));
  impl.service = std::move(service);
  impl.journal = std::make_unique<StoreJournal>(*impl.store);
  JobManager::Options job_options;
  job_options.journal = impl.journal.get();
  impl.jobs = std::make_unique<JobManager>(job_options);
  impl.tender.emplace(impl.service->campaigns(), options.tend_every);
  return app;
}

Service& App::service() { return *impl_->service; }
JobManager& App::jobs() { return *impl_->jobs; }
bool App::busy() const { return impl_->jobs->active() > 0; }

std::string version() { return "0.1.0"; }

}  // namespace amk
