// The parts of the server definition; each in its own source.
#pragma once

#include <memory>
#include <vector>

#include "server/protocol/definition.h"
#include "server/tools/app.h"

namespace amk {

Result<std::vector<mcp::ToolSpec>> make_tools(const std::shared_ptr<App>& app);
void add_resources(mcp::ServerDefinition& definition, const std::shared_ptr<App>& app);
void add_prompts(mcp::ServerDefinition& definition, const std::shared_ptr<App>& app);

// Names that a user may mean, for completion: those that start with what was typed, then those that contain it.
std::vector<std::string> complete_from(const std::vector<std::string>& names, const std::string& typed);
std::vector<std::string> model_names();
std::vector<std::string> gpu_names();

std::string playbook_text();

}  // namespace amk
