// JSON-RPC 2.0 messages: telling the kinds apart, and building replies. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace amk::mcp {

// Codes of JSON-RPC 2.0 and of MCP (2026-07-28 basic/index, "Error Codes"; -32002 only in earlier revisions).
enum class RpcCode {
  ParseError = -32700,
  InvalidRequest = -32600,
  MethodNotFound = -32601,
  InvalidParams = -32602,
  InternalError = -32603,
  ResourceNotFoundLegacy = -32002,
  HeaderMismatch = -32020,
  MissingClientCapability = -32021,
  UnsupportedProtocolVersion = -32022,
};

struct RpcError {
  RpcCode code = RpcCode::InternalError;
  std::string message;
  Json data;  // null: none
};

// What may be had later (threads, room for one more): data.kind says "unavailable", as a tool's own error does.
RpcError unavailable(std::string message);

constexpr std::size_t kMaxIdBytes = 1024;  // of ids and progress tokens, which are repeated with everything that is said of a request

enum class MessageKind { Request, Notification, Response, Invalid };

// One message, taken apart. `id` is a string or an integer; null when there is none or it could not be read.
struct Message {
  MessageKind kind = MessageKind::Invalid;
  Json id;
  std::string method;
  Json params = Json::object();  // absent params are an empty object
  Json result;                   // Response: the result, or null
  Json error;                    // Response: the error object, or null
  std::string problem;           // Invalid: why
};

// Never fails: what does not conform is Invalid and says why. MCP narrows JSON-RPC: ids are strings or integers (not null),
// params are objects.
Message classify(Json message);

Json make_result(const Json& id, Json result);
// An id that is null is left out: MCP's schemas know no null id.
Json make_error(const Json& id, const RpcError& error);
Json make_notification(std::string_view method, Json params);
Json make_request(const Json& id, std::string_view method, Json params);

}  // namespace amk::mcp
