#include <algorithm>

#include "core/base/resources.h"
#include "core/target/gpu_target.h"
#include "embedded/playbook_files.h"
#include "kernels/registry.h"
#include "server/tools/parts.h"

namespace amk {

std::string playbook_text() {
  const auto& files = playbook_files();
  return files.empty() ? std::string() : files.front().second;
}

std::vector<std::string> complete_from(const std::vector<std::string>& names, const std::string& typed) {
  std::vector<std::string> starts, contains;
  for (const std::string& name : names) {
    const std::size_t at = name.find(typed);
    if (at == 0)
      starts.push_back(name);
    else if (at != std::string::npos)
      contains.push_back(name);
  }
  starts.insert(starts.end(), contains.begin(), contains.end());
  return starts;
}

std::vector<std::string> model_names() { return known_workloads(); }

std::vector<std::string> gpu_names() {
  std::vector<std::string> names = {"auto"};
  if (auto resources = find_resources()) {
    auto records = gpu_target_names(resources->config() / "gpus");
    names.insert(names.end(), records.begin(), records.end());
  }
  return names;
}

Result<mcp::ServerDefinition> make_definition(std::shared_ptr<App> app) {
  mcp::ServerDefinition definition;
  definition.title = "amk: kernel schedule search";
  definition.version = version();
  definition.instructions =
      "Search GPU kernel schedules through typed knobs; you never write kernel source. Loop: amk_doctor, then amk_propose (knobs, incumbent, "
      "suggestions), then amk_eval one config with a hypothesis, or amk_loop / amk_autoresearch for many. Only a verdict with valid and correct true "
      "has a latency; latency_kind says measured-gpu or predicted: never call a prediction a measurement. A best needs the verdict_id that amk_eval "
      "issued (amk_orchestrate_record status=kept); numbers you type are stored as claims. Calls that run longer than wait_s return a job_id: poll "
      "amk_job. Read the resource amk://playbook once.";
  AMK_TRY(tools, make_tools(app));
  definition.tools = std::move(tools);
  add_resources(definition, app);
  add_prompts(definition, app);
  return definition;
}

}  // namespace amk
