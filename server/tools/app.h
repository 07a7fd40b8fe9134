// One workspace's whole application: store, judge, service and jobs, and the server definition over them. What the daemon serves and what
// --no-daemon calls in-process. Thread-safe.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "orchestrator/service/service.h"
#include "server/daemon/jobs.h"
#include "server/protocol/definition.h"

namespace amk {

struct AppOptions {
  std::filesystem::path workspace;
  std::function<std::string()> next_fault;                  // programs for tests only: LocalJudgeOptions::next_fault
  std::function<std::unique_ptr<Judge>()> make_judge = {};  // tests only: instead of the local judge
  const Clock* clock = nullptr;                             // tests only: instead of the system's; outlives the app
  std::chrono::milliseconds tend_every{5'000};              // how often leases that ran out are looked for
};

class App {
 public:
  // Opens the store: Conflict when another process has the workspace.
  static Result<std::shared_ptr<App>> open(const AppOptions& options);
  ~App();

  Service& service();
  JobManager& jobs();
  bool busy() const;  // jobs are queued or running

 private:
  App();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Tools, resources, prompts. The handlers keep the app alive.
Result<mcp::ServerDefinition> make_definition(std::shared_ptr<App> app);

std::string version();  // "0.1.0"

}  // namespace amk
