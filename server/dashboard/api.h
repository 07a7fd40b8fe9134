// The page's data endpoints, free of HTTP: a name and a query in, JSON out. Everything comes from the service's own calls. Thread-safe.
#pragma once

#include <filesystem>
#include <string>

#include "orchestrator/service/service.h"
#include "server/daemon/jobs.h"
#include "server/dashboard/history.h"
#include "server/dashboard/query.h"
#include "server/dashboard/trace.h"

namespace amk::dashboard {

class Api {
 public:
  Api(amk::Service& service, JobManager& jobs, std::filesystem::path workspace);
  // The endpoints of dashboard.h but events; NotFound for any other name.
  Result<Json> get(const std::string& name, std::string_view query);
  // What the event stream carries: never fails, says {"error": …} instead.
  Json state() const;

 private:
  Result<Json> campaign(const Query& q);
  Result<Json> experiment(const Query& q);
  Result<Json> results(const Query& q);
  Result<Json> trace(const Query& q);

  amk::Service& service_;
  JobManager& jobs_;
  const std::filesystem::path workspace_;
  Histories histories_;
  Traces traces_;
};

}  // namespace amk::dashboard
