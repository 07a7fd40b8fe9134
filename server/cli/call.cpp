#include "server/cli/call.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <set>
#include <stop_token>
#include <thread>

#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/parse_json.h"
#include "orchestrator/results/formats.h"
#include "orchestrator/results/results.h"
#include "server/cli/output.h"
#include "server/daemon/client.h"
#include "server/daemon/daemon.h"
#include "server/daemon/error_json.h"
#include "server/daemon/log.h"
#include "server/protocol/server.h"
#include "server/tools/app.h"
#include "server/tools/fault_injection.h"

namespace amk::cli {
namespace {

// Set by the signal handler; watched by a thread that turns it into a stop request.
std::atomic<bool> g_interrupted{false};

class InterruptWatch {
 public:
  explicit InterruptWatch(std::stop_source& source) {
    struct sigaction action {};
    action.sa_handler = [](int) { g_interrupted = true; };
    action.sa_flags = SA_RESETHAND;  // who does not want to wait for the end of what runs asks twice
    ::sigaction(SIGINT, &action, &old_int_);
    ::sigaction(SIGTERM, &action, &old_term_);
    thread_ = std::jthread([&source](std::stop_token stop) {
      while (!stop.stop_requested()) {
        if (g_interrupted) source.request_stop();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
  }
  ~InterruptWatch() {
    ::sigaction(SIGINT, &old_int_, nullptr);
    ::sigaction(SIGTERM, &old_term_, nullptr);
  }

 private:
  struct sigaction old_int_ {
  }, old_term_{};
  std::jthread thread_;
};

Result<std::unique_ptr<daemon::ToolClient>> make_client(const CallOptions& options) {
  AMK_TRY(paths, daemon::prepare_paths(options.workspace));
  if (!options.no_daemon) return daemon::daemon_client(paths, daemon::default_launch(paths));
  AMK_TRY(app, App::open({paths.workspace, fault_injection().value_or(nullptr)}));
  AMK_TRY(definition, make_definition(app));
  return daemon::in_process_client(std::make_shared<mcp::Server>(std::move(definition)));
}

bool still_running(const Json& result) {
  return result.is_object() && result.contains("job_id") && (result.value("state", "") == "running" || result.value("state", "") == "queued");
}

// What amk_job says of a finished job, as the original call would have said it.
Result<Json> unwrap(const Json& job) {
  if (job.value("state", "") == "done" && job.contains("result")) return job["result"];
  if (job.contains("error") && job["error"].is_object()) return daemon::error_of(job["error"]);
  return fail(ErrorKind::Cancelled, "the job ended as " + job.value("state", "unknown"), job);
}

}  // namespace

Result<Json> call_tool(const CallOptions& options, const std::string& tool, Json args) {
  static const std::set<std::string> kLong = {"amk_eval", "amk_loop", "amk_autoresearch"};
  const bool is_long = kLong.count(tool) != 0;
  if (is_long) args["wait_s"] = 0;  // the job's name comes first: an interruption has to tell it to stop
  AMK_TRY(client, make_client(options));
  std::stop_source source;
  InterruptWatch watch(source);
  ProgressBar bar;
  const auto show = [&bar](const daemon::Progress& p) { bar.show(p.done, p.total, p.message); };

  auto result = client->call(tool, args, show, source.get_token());
  if (!is_long || options.detach) return result;
  if (!result || !still_running(*result)) return result;
  const std::string job_id = (*result)["job_id"].get<std::string>();
  for (;;) {
    const auto asked = std::chrono::steady_clock::now();
    result = client->call("amk_job", {{"job_id", job_id}, {"wait_s", 50}}, show, source.get_token());
    if (result && !still_running(*result)) return unwrap(*result);
    if (source.stop_requested()) {
      (void)client->call("amk_job", {{"job_id", job_id}, {"cancel", true}});
      return fail(ErrorKind::Cancelled, "interrupted; job " + job_id + " was told to stop, and what it measured is kept", {{"job_id", job_id}});
    }
    if (!result) return result;
    // A daemon with many who wait answers at once.
    if (std::chrono::steady_clock::now() - asked < std::chrono::seconds(1)) std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
}

Result<Json> export_rows(const CallOptions& options, Json filters, const std::string& file) {
  const std::filesystem::path path = file;
  const std::string ending = path.extension().string();
  if (ending != ".tsv" && ending != ".csv" && ending != ".jsonl") return bad_field("file", file, "a name that ends in .tsv, .csv or .jsonl");
  filters["limit"] = kLargestPage;
  if (!filters.contains("sort")) filters["sort"] = "time";  // as results.tsv has them
  AMK_TRY(client, make_client(options));
  AMK_TRY(out, AtomicFile::create(path, {.keep_mode = true, .durable = false}));
  const auto line = [&ending](const std::vector<std::string>& fields) { return ending == ".csv" ? csv_line(fields) : tsv_line(fields); };
  // Columns are results.tsv's, whatever the rows have: of the first row's keys a latency may be missing.
  if (ending != ".jsonl") AMK_CHECK(out.write(line({tsv_columns().begin(), tsv_columns().end()})));
  std::int64_t rows = 0;
  for (;;) {
    AMK_TRY(page, client->call("amk_results", filters));
    for (const Json& row : page["rows"]) {
      AMK_CHECK(out.write(ending == ".jsonl" ? canonical_dump(row) + "\n" : line(tsv_fields(row))));
      ++rows;
    }
    if (!page.contains("next_cursor")) break;
    filters["cursor"] = page["next_cursor"];
  }
  AMK_CHECK(out.publish());
  return Json{{"file", std::filesystem::absolute(path).string()}, {"rows", rows}};
}

}  // namespace amk::cli
