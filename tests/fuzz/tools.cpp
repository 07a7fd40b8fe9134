// Arguments of every tool, through coercion, validation and the real handlers, on a workspace of its own with a judge that answers at once.
// The input is {"name": tool, "arguments": {…}}. Searches, suggestions, evaluations and records take up to a thousand times as long as what reads
// their arguments: of the inputs that name them most end where the handler would begin, by a hash of the input, so that each is always treated alike.
#include <cstdlib>
#include <thread>

#include "core/base/parse_json.h"
#include "server/protocol/schema.h"
#include "server/protocol/server.h"
#include "server/tools/app.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/verdicts.h"

using namespace amk;
using fuzz::require;

namespace {

// Correct, at a latency that depends on the config alone.
class InstantJudge final : public Judge {
 public:
  std::vector<GpuTarget> local_gpus() override { return {}; }
  Json gpu_report() override { return {{"gpus", Json::array()}, {"missing", Json::array()}}; }
  Result<Verdict> judge(const Workload& workload, const Json& canonical, Device, const IncumbentNow&, const Progress&) override {
    return test::predicted(workload, canonical, 100 + static_cast<double>(std::hash<std::string>{}(workload.schedule_id(canonical)) % 1000));
  }
};

// Of how many inputs that name this tool one reaches its handler. Searches compute; an evaluation or a record passes through two other threads.
std::size_t one_in(const std::string& tool) {
  for (const char* name : {"amk_propose", "amk_loop", "amk_autoresearch", "amk_orchestrate_report"})
    if (tool == name) return 256;
  return tool == "amk_eval" || tool == "amk_orchestrate_record" ? 16 : 1;
}

struct World {
  std::shared_ptr<App> app;
  std::unique_ptr<mcp::Server> server;
  std::unique_ptr<mcp::Server> light;  // the same without the slow handlers

  World() {
    std::error_code code;
    const auto workspace = fuzz::scratch() / "workspace";
    std::filesystem::remove_all(workspace, code);
    AppOptions options;
    options.workspace = workspace;
    options.make_judge = [] { return std::make_unique<InstantJudge>(); };
    auto opened = App::open(options);
    require(opened.has_value(), opened ? "" : "the workspace opens: " + opened.error().message);
    app = *opened;
    auto definition = make_definition(app);
    require(definition.has_value(), "the definition is made");
    mcp::ServerDefinition without = *definition;
    for (mcp::ToolSpec& tool : without.tools)
      if (one_in(tool.name) > 1)
        tool.call = [](const Json&, mcp::RequestContext&) -> Result<Json> { return fail(ErrorKind::Unavailable, "not for this input"); };
    light = std::make_unique<mcp::Server>(std::move(without), mcp::Server::Options{.max_threads = 1, .log = {}});
    server = std::make_unique<mcp::Server>(std::move(*definition), mcp::Server::Options{.max_threads = 1, .log = {}});
    // Something to ask about.
    mcp::NullContext context;
    (void)server->call_tool("amk_loop", {{"model", "toy"}, {"device", "cpu"}, {"budget", 3}}, context);
  }
};

void shorten(Json& args, const char* key, double most) {
  const auto at = args.find(key);
  if (at != args.end() && at->is_number() && at->get<double>() > most) *at = most;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::unique_ptr<World> world;
  static int uses = 0;
  if (uses++ % 10'000 == 0) {
    world.reset();
    world = std::make_unique<World>();
  }
  auto json = parse_json(fuzz::text_of(data, size), "input");
  if (!json || !json->is_object()) return 0;
  const std::string name = json->value("name", Json()).is_string() ? (*json)["name"].get<std::string>() : "amk_eval";
  Json args = json->value("arguments", Json::object());
  if (args.is_object()) {
    // What would only take long: searches of many evaluations.
    if (name != "amk_orchestrate_record") args["wait_s"] = 20;  // the judge answers at once
    if (name == "amk_loop" && !args.contains("budget")) args["budget"] = 2;
    shorten(args, "budget", 2);
    shorten(args, "iters", 2);
    shorten(args, "minutes", 0.001);
    if (name == "amk_autoresearch") args["iters"] = 2;
  }
  mcp::NullContext context;
  const bool whole = std::hash<std::string_view>{}(fuzz::text_of(data, size)) % one_in(name) == 0;
  const auto result = (whole ? world->server : world->light)->call_tool(name, args, context);
  if (result) {
    for (const mcp::ToolSpec& tool : world->server->definition().tools)
      if (tool.name == name && !tool.output_schema.empty()) {
        const Status fits = mcp::validate(tool.output_schema, *result);
        require(fits.has_value(), fits ? "" : name + " answers as its schema says: " + fits.error().message);
      }
    require(parse_json(canonical_dump(*result), "result").has_value(), "a result is JSON");
  } else {
    require(!result.error().message.empty(), "a refusal says why");
  }
  for (const JobSnapshot& job : world->app->jobs().list())
    if (!is_final(job.state)) (void)world->app->jobs().cancel(job.job_id);
  while (world->app->busy()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  return 0;
}
