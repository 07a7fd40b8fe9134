// The conformance fixtures that ask the client something in the middle of a call. Internal to this folder.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>

#include "server/protocol/definition.h"

namespace amk::mcp::conformance {

Json text(const std::string& t);
Result<Json> content(std::initializer_list<Json> blocks);
ToolSpec fixture(std::string name, std::function<Result<Json>(const Json&, RequestContext&)> call);

// Asks for one field by elicitation; the client's answer.
Result<Json> ask_for(RequestContext& context, const std::string& key, const std::string& question, const std::string& field, const std::string& type);
// The field of an answer as text; empty if the user declined.
std::string answered(const Json& answer, const std::string& field);

void add_question_tools(ServerDefinition& definition);

}  // namespace amk::mcp::conformance
