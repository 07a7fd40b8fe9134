#include "server/tools/parts.h"

namespace amk {
namespace {

mcp::PromptResult user_text(std::string description, std::string text) {
  mcp::PromptResult result;
  result.description = std::move(description);
  result.messages = Json::array({{{"role", "user"}, {"content", {{"type", "text"}, {"text", std::move(text)}}}}});
  return result;
}

std::string argument(const std::map<std::string, std::string>& args, const char* name, const char* otherwise) {
  const auto at = args.find(name);
  return at == args.end() || at->second.empty() ? otherwise : at->second;
}

std::vector<mcp::PromptArgument> model_and_gpu() {
  return {{"model", "Model", "Workload: a catalogue name, a checkpoint folder, org/name, or det_gemm:…", true,
           [](const std::string& typed, const Json&) { return complete_from(model_names(), typed); }},
          {"gpu", "GPU", "GPU record or auto", false, [](const std::string& typed, const Json&) { return complete_from(gpu_names(), typed); }}};
}

}  // namespace

void add_prompts(mcp::ServerDefinition& definition, const std::shared_ptr<App>&) {
  definition.prompts.push_back(
      {"amk_optimize", "Optimise a kernel by hand", "One hypothesis at a time: propose, evaluate, record, until next says stop.", model_and_gpu(),
       [](const std::map<std::string, std::string>& args, mcp::RequestContext&) -> Result<mcp::PromptResult> {
         const std::string model = argument(args, "model", ""), gpu = argument(args, "gpu", "auto");
         return user_text("Optimise " + model + " on " + gpu, "Optimise the schedule of " + model + " on gpu=" + gpu +
                                                                  " with the amk tools. Follow this playbook:\n\n" + playbook_text());
       }});
  definition.prompts.push_back(
      {"amk_autoresearch", "Unattended campaign", "Start a long search and report on it.", model_and_gpu(),
       [](const std::map<std::string, std::string>& args, mcp::RequestContext&) -> Result<mcp::PromptResult> {
         const std::string model = argument(args, "model", ""), gpu = argument(args, "gpu", "auto");
         return user_text(
             "Autoresearch of " + model + " on " + gpu,
             "Run amk_doctor, then amk_autoresearch with model=" + model + ", gpu=" + gpu +
                 ". When it returns a job_id, poll amk_job (wait_s=45) until it is done. Then read amk_orchestrate_report and tell what was "
                 "kept, by how much, measured or predicted, and what to try next.\n\n" +
                 playbook_text());
       }});
}

}  // namespace amk
