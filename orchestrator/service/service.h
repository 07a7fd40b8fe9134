// What the tools do, free of protocol: the one place where workloads, the judge, strategies and campaigns meet. The daemon's tool handlers,
// the CLI's --no-daemon mode and the tests call the same functions. Thread-safe.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "orchestrator/campaign/campaign.h"
#include "orchestrator/results/results.h"
#include "orchestrator/service/judge.h"
#include "orchestrator/service/workloads.h"

namespace amk {

struct EvalRequest {
  std::string model, gpu = "auto", device = "auto";
  Json config = Json::object();
  std::string hypothesis;
};

struct SearchRequest {
  std::string model, gpu = "auto", device = "auto";
  std::string strategy;  // empty: the default
  std::uint64_t seed = 1;
  bool cold = false;
  std::optional<Json> start_config;
  std::int64_t budget = 8;            // loop: evaluations of this call
  std::optional<std::int64_t> iters;  // autoresearch: evaluations of the run, counted over resumptions
  std::optional<double> minutes;      // autoresearch: time of the campaign
  bool overnight = false, reopen = false;
};

struct ServiceOptions {
  std::filesystem::path workspace;
  std::filesystem::path gpus_dir;  // config/gpus
  std::string version;
};

class Service {
 public:
  // `store` and `judge` outlive the service.
  static Result<std::unique_ptr<Service>> create(ServiceOptions options, Store& store, Judge& judge);
  ~Service();

  Json doctor();
  Result<Json> propose(const std::string& model, const std::string& gpu, const std::string& device);
  Result<Json> eval(const EvalRequest& request, const Progress& progress);
  // Spends the budget: a plateau does not end it (the caller asked for so many evaluations); the floor and a cancelled progress do.
  Result<Json> loop(const SearchRequest& request, const Progress& progress);
  // A run = (campaign, strategy, seed): called again with the same ones it goes on where it stopped, evaluation by evaluation, also after a
  // crash. Ends by the campaign's rules; overnight: plateaus do not end it.
  Result<Json> autoresearch(const SearchRequest& request, const Progress& progress);
  Result<Json> status(const std::string& campaign);
  Result<Json> next(const std::string& campaign);
  Result<Json> report(const std::string& campaign);  // also written to workspace/reports
  Result<Json> record(const std::string& campaign, RecordRequest request);
  Result<Json> results(const Json& arguments);
  Result<Json> import(const std::filesystem::path& file, const std::string& source);  // foreign rows: never a best

  CampaignService& campaigns();
  Results& result_rows();
  ResultFiles& result_files();
  Workloads& workloads();

  struct Impl;  // impl.h, for the service's own sources

 private:
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace amk
