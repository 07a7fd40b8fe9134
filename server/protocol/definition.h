// What a server offers: tools, resources, prompts, completions. Plain values that the program fills once; handlers know
// nothing of protocol revisions, transports or framing. Handlers are called from any thread, several at a time.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "server/protocol/request_context.h"

namespace amk::mcp {

// Hints for clients. All four are always sent: clients that run unattended refuse tools that leave them out.
struct ToolAnnotations {
  bool read_only = false;    // changes nothing
  bool destructive = false;  // may overwrite or delete; meaningful only when not read_only
  bool idempotent = false;   // repeating a call changes nothing more; meaningful only when not read_only
  bool open_world = false;   // reaches outside this machine
};

// A tool. The schemas are JSON Schema 2020-12, of the subset in schema.h: a root of type object with properties, a type on
// every property, no $ref, no root anyOf/oneOf/allOf (schema_lint.h checks it).
//
// `call` receives arguments that were coerced and validated against input_schema, with defaults filled in. What it returns
// becomes structuredContent and, as the same JSON text, the text content. output_schema describes success only; the
// server publishes it with an `error` property added and without the root's `required`, because clients validate
// failures against it as well. A returned Error becomes a tool result with isError whose two forms are to_json(error).
struct ToolSpec {
  std::string name = {};  // [a-z0-9_], at most 30 characters
  std::string title = {};
  std::string description = {};  // at most 1,800 characters, key facts first
  Json input_schema = Json::object();
  Json output_schema = Json::object();  // empty object: none published, and call's value is not checked
  ToolAnnotations annotations = {};
  std::function<Result<Json>(const Json& args, RequestContext&)> call = {};
  // True: `call` returns a whole CallToolResult ({"content": […], …}) instead of a structured value.
  bool returns_content = false;
  // True: input_schema uses keywords outside the subset; it is listed as it is, and arguments reach `call` as they came.
  bool opaque_input = false;
};

struct ResourceContent {
  std::string text = {};       // UTF-8 text, or raw bytes when binary
  bool binary = false;         // sent base64-encoded
  std::string mime_type = {};  // empty: that of the spec
};

struct ResourceSpec {
  std::string uri = {};
  std::string name = {};
  std::string title = {};
  std::string description = {};
  std::string mime_type = "text/plain";
  std::function<Result<ResourceContent>(RequestContext&)> read = {};  // empty in entries of ServerDefinition::list_resources
  int ttl_ms = 0;                                                     // how long a client may cache it (2026-07-28)
};

// Proposes values for a partly typed argument. `context` holds arguments already chosen ({} if none). Best first; at most 100 are sent.
using Completer = std::function<std::vector<std::string>(const std::string& typed, const Json& context)>;

// uri_template: RFC 6570 level 1, e.g. "amk://campaigns/{campaign}/report". A variable matches one or more characters other
// than '/', and reaches `read` percent-decoded.
struct ResourceTemplateSpec {
  std::string uri_template = {};
  std::string name = {};
  std::string title = {};
  std::string description = {};
  std::string mime_type = "text/plain";
  std::function<Result<ResourceContent>(const std::string& uri, const std::map<std::string, std::string>& variables, RequestContext&)> read = {};
  std::map<std::string, Completer> complete = {};  // by variable
  int ttl_ms = 0;
};

struct PromptArgument {
  std::string name = {};
  std::string title = {};
  std::string description = {};
  bool required = false;
  Completer complete = {};  // may be empty
};

struct PromptResult {
  std::string description = {};
  // Each {"role": "user"|"assistant", "content": {"type": "text", "text": …}}.
  Json messages = Json::array();
};

struct PromptSpec {
  std::string name = {};
  std::string title = {};
  std::string description = {};
  std::vector<PromptArgument> arguments = {};
  // `args`: strings by name; required ones are present.
  std::function<Result<PromptResult>(const std::map<std::string, std::string>& args, RequestContext&)> get = {};
};

struct ServerDefinition {
  std::string name = "amk";
  std::string title = "amk";
  std::string version = {};
  std::string website_url = {};   // may be empty
  std::string instructions = {};  // shown to the model once: how to use the tools together

  std::vector<ToolSpec> tools;
  std::vector<ResourceSpec> resources;
  std::vector<ResourceTemplateSpec> resource_templates;
  // Resources that come and go (reports of campaigns, …): listed after `resources`; each must be readable through one of
  // resource_templates. May be empty.
  std::function<std::vector<ResourceSpec>()> list_resources;
  std::vector<PromptSpec> prompts;

  // Lists that may change while the server runs, announced with Server::list_changed.
  bool tools_change = false, resources_change = false, prompts_change = false;

  int page_size = 100;                    // entries in one page of a list
  int list_ttl_ms = 300'000;              // how long clients may cache lists (2026-07-28)
  std::size_t reply_budget_bytes = 8192;  // what a tool should stay under: RequestContext::reply_budget_bytes()
  double heartbeat_s = 10;                // a running call whose client wants progress hears at least this often
  double call_deadline_s = 0;             // > 0: a call is answered with a timeout error after this long
};

// The server half of logging, for the operator, not for clients: one line. May be called from any thread.
using LogLine = std::function<void(std::string_view level, std::string_view line)>;

}  // namespace amk::mcp
