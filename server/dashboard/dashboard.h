// The page for people, as a part of the daemon's HTTP: /dashboard (public, holds no data) and /dashboard/api/… (token required, GET only).
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <vector>

#include "orchestrator/service/service.h"
#include "server/daemon/jobs.h"
#include "server/http/http_service.h"

namespace amk::dashboard {

struct DashboardOptions {
  std::filesystem::path workspace;
  std::vector<std::filesystem::path> page_folders;  // where the built page may be; the first that has it
  std::chrono::milliseconds look_every{300};        // for changes, while somebody watches
  std::size_t max_streams = 400;
  int max_threads = 3;            // reading the store for requests; one more for those that take seconds
  std::size_t max_waiting = 256;  // requests that wait for a thread: more are refused with 503
};

// Folders in which this build looks for the page: a bundle's share/amk/dashboard, then the build folder.
std::vector<std::filesystem::path> default_page_folders();

// All that the page shows:
//   events                       server-sent: {"version", "workspace", "campaigns", "campaigns_total", "jobs"}, now and whenever it changes
//   campaign?id=                 amk_orchestrate_status of one campaign, and the verdict of its best
//   series?campaign=&points=     History::series
//   importance?campaign=         History::importance
//   results?…                    amk_results (model, gpu, campaign, outcome, kind, schedule_id, loop, sort, limit, cursor)
//   diff?a=&b=                   what differs between two experiments' configs
//   experiment?id=               one experiment, its verdict, and whether it was traced
//   traces, trace?schedule_id=&from_us=&to_us=&bins=   the token timeline
// Errors are {"error": {kind, message, data}} with a fitting status. Requests are served by a few threads; none blocks the HTTP thread.
class Dashboard {
 public:
  // `service` and `jobs` outlive it.
  Dashboard(amk::Service& service, JobManager& jobs, DashboardOptions options);
  ~Dashboard();  // after the http::Service that it was added to has stopped
  void add_to(http::Service& http);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace amk::dashboard
