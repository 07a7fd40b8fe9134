#include "server/protocol/conformance_questions.h"

#include <mutex>
#include <set>

#include "core/base/parse_json.h"
#include "server/protocol/random_id.h"

namespace amk::mcp::conformance {

Json text(const std::string& t) { return {{"type", "text"}, {"text", t}}; }

Result<Json> content(std::initializer_list<Json> blocks) {
  Json list = Json::array();
  for (const Json& b : blocks) list.push_back(b);
  return Json{{"content", std::move(list)}};
}

ToolSpec fixture(std::string name, std::function<Result<Json>(const Json&, RequestContext&)> call) {
  ToolSpec t{.name = std::move(name), .title = "Fixture", .description = "For the conformance suite.", .annotations = {.read_only = true}};
  t.input_schema = {{"type", "object"}, {"properties", Json::object()}};
  t.returns_content = true;
  t.call = std::move(call);
  return t;
}

Result<Json> ask_for(RequestContext& context, const std::string& key, const std::string& question, const std::string& field,
                     const std::string& type) {
  return context.ask_client(
      key, "elicitation/create",
      {{"message", question}, {"requestedSchema", {{"type", "object"}, {"properties", {{field, {{"type", type}}}}}, {"required", {field}}}}});
}

std::string answered(const Json& answer, const std::string& field) {
  const Json fields = answer.value("content", Json::object());
  const Json value = fields.is_object() ? fields.value(field, Json()) : Json();
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
}

namespace {

Json sampling(const std::string& prompt, int max_tokens) {
  return {{"messages", {{{"role", "user"}, {"content", text(prompt)}}}}, {"maxTokens", max_tokens}};
}
std::string said(const Json& sampled) {
  const Json block = sampled.value("content", Json::object());
  return block.is_object() ? block.value("text", std::string()) : std::string();
}

// States that we handed out and that may come back once or more: anything else was tampered with.
class States {
 public:
  std::string issue(const std::string& meaning) {
    std::lock_guard lock(mutex_);
    constexpr std::size_t kMost = 1000;
    if (known_.size() >= kMost) known_.clear();
    return *known_.insert(meaning + "." + random_id(16)).first;
  }
  // The meaning of a state of ours; empty for any other.
  std::string meaning(const std::string& state) const {
    std::lock_guard lock(mutex_);
    return known_.contains(state) ? state.substr(0, state.find('.')) : std::string();
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::string> known_;
};

Result<Json> refused_state(RequestContext& c) {
  c.refuse_request("requestState is not one that this server handed out");
  return fail(ErrorKind::InvalidArgument, "requestState is not one that this server handed out");
}

void add_legacy_questions(ServerDefinition& d) {
  ToolSpec sample = fixture("test_sampling", [](const Json& args, RequestContext& c) -> Result<Json> {
    AMK_TRY(answer, c.ask_client("sample", "sampling/createMessage", sampling(args["prompt"].get<std::string>(), 100)));
    return content({text("LLM response: " + said(answer))});
  });
  sample.input_schema["properties"]["prompt"] = {{"type", "string"}, {"description", "the prompt"}};
  sample.input_schema["required"] = {"prompt"};
  d.tools.push_back(std::move(sample));

  ToolSpec elicit = fixture("test_elicitation", [](const Json& args, RequestContext& c) -> Result<Json> {
    const Json schema = Json::parse(R"({"type":"object","properties":{"username":{"type":"string","description":"User's response"},
        "email":{"type":"string","description":"User's email address"}},"required":["username","email"]})");
    AMK_TRY(answer, c.ask_client("user", "elicitation/create", {{"message", args["message"]}, {"requestedSchema", schema}}));
    return content({text("User response: " + canonical_dump(answer))});
  });
  elicit.input_schema["properties"]["message"] = {{"type", "string"}, {"description", "what to ask"}};
  elicit.input_schema["required"] = {"message"};
  d.tools.push_back(std::move(elicit));

  const std::pair<const char*, const char*> forms[] = {
      {"test_elicitation_sep1034_defaults", R"({"type":"object","properties":{"name":{"type":"string","default":"John Doe"},
        "age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
        "status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}}})"},
      {"test_elicitation_sep1330_enums", R"({"type":"object","properties":{
        "untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
        "titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},
        "legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
        "untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},
        "titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}}})"}};
  for (const auto& [name, schema] : forms)
    d.tools.push_back(fixture(name, [schema = Json::parse(schema)](const Json&, RequestContext& c) -> Result<Json> {
      AMK_TRY(answer, c.ask_client("form", "elicitation/create", {{"message", "Please fill in the form."}, {"requestedSchema", schema}}));
      return content({text("Elicitation completed: action=" + answer.value("action", std::string()) +
                           ", content=" + canonical_dump(answer.value("content", Json::object())))});
    }));
}

void add_rounds(ServerDefinition& d) {
  const auto states = std::make_shared<States>();
  for (const char* name : {"test_input_required_result_elicitation", "test_streaming_elicitation"})
    d.tools.push_back(fixture(name, [](const Json&, RequestContext& c) -> Result<Json> {
      AMK_TRY(answer, ask_for(c, "user_name", "What is your name?", "name", "string"));
      return content({text("Hello, " + answered(answer, "name") + "!")});
    }));
  for (const char* name : {"test_input_required_result_sampling", "test_missing_capability"})
    d.tools.push_back(fixture(name, [](const Json&, RequestContext& c) -> Result<Json> {
      AMK_TRY(answer, c.ask_client("capital_question", "sampling/createMessage", sampling("What is the capital of France?", 100)));
      return content({text(said(answer))});
    }));
  d.tools.push_back(fixture("test_input_required_result_list_roots", [](const Json&, RequestContext& c) -> Result<Json> {
    AMK_TRY(answer, c.ask_client("client_roots", "roots/list", Json::object()));
    return content({text("Roots: " + canonical_dump(answer.value("roots", Json::array())))});
  }));
  for (const char* name : {"test_input_required_result_request_state", "test_input_required_result_tampered_state"})
    d.tools.push_back(fixture(name, [states](const Json&, RequestContext& c) -> Result<Json> {
      if (!c.request_state().empty() && states->meaning(c.request_state()) != "confirm") return refused_state(c);
      const auto answer = ask_for(c, "confirm", "Please confirm", "ok", "boolean");
      if (!answer || c.request_state().empty()) {
        c.set_request_state(states->issue("confirm"));
        return answer ? refused_state(c) : answer;
      }
      return content({text("state-ok")});
    }));
  d.tools.push_back(fixture("test_input_required_result_multiple_inputs", [states](const Json&, RequestContext& c) -> Result<Json> {
    const auto name = ask_for(c, "user_name", "What is your name?", "name", "string");
    const auto greeting = c.ask_client("greeting", "sampling/createMessage", sampling("Generate a greeting", 50));
    const auto roots = c.ask_client("client_roots", "roots/list", Json::object());
    for (const auto* answer : {&name, &greeting, &roots})
      if (!*answer) {
        c.set_request_state(states->issue("several"));
        return *answer;
      }
    return content({text(said(*greeting) + ", " + answered(*name, "name"))});
  }));
  d.tools.push_back(fixture("test_input_required_result_multi_round", [states](const Json&, RequestContext& c) -> Result<Json> {
    const std::string at = states->meaning(c.request_state());
    if (!c.request_state().empty() && at.empty()) return refused_state(c);
    if (at != "two") {
      auto first = ask_for(c, "step1", "Step 1: What is your name?", "name", "string");
      if (!first) {
        c.set_request_state(states->issue("one"));
        return first;
      }
    }
    const auto second = ask_for(c, "step2", "Step 2: What is your favorite color?", "color", "string");
    if (!second) {
      c.set_request_state(states->issue("two"));
      return second;
    }
    return content({text("Done: " + answered(*second, "color"))});
  }));
  d.tools.push_back(fixture("test_input_required_result_capabilities", [](const Json&, RequestContext& c) -> Result<Json> {
    // Asks only what this client can answer.
    Result<Json> last = content({text("The client can answer nothing.")});
    if (c.client_supports("sampling")) last = c.ask_client("question", "sampling/createMessage", sampling("Say hello", 20));
    if (c.client_supports("elicitation")) last = ask_for(c, "name", "What is your name?", "name", "string");
    if (!last) return last;
    return content({text("answered")});
  }));
}

}  // namespace

void add_question_tools(ServerDefinition& d) {
  add_legacy_questions(d);
  add_rounds(d);
}

}  // namespace amk::mcp::conformance
