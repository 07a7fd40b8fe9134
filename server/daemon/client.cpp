#include "server/daemon/client.h"

#include <mutex>

#include "core/base/parse_json.h"
#include "server/daemon/error_json.h"
#include "server/protocol/json_rpc.h"
#include "server/protocol/revisions.h"

namespace amk::daemon {
namespace {

tl::unexpected<Error> rpc_error_of(const Json& error) {
  const int code = error.value("code", 0);
  const Json data = error.value("data", Json());
  const ErrorKind kind = code == static_cast<int>(mcp::RpcCode::InvalidParams)
                             ? ErrorKind::InvalidArgument
                             : error_kind_of(data.is_object() ? data.value("kind", std::string()) : std::string());
  return fail(kind, error.value("message", std::string("no message")), {{"code", code}});
}

class DaemonClient final : public ToolClient {
 public:
  DaemonClient(Paths paths, Launch launch) : paths_(std::move(paths)), launch_(std::move(launch)) {}

  Result<Json> call(const std::string& tool, const Json& args, const OnProgress& on_progress, std::stop_token stop) override {
    AMK_TRY(result, request("tools/call", {{"name", tool}, {"arguments", args}}, on_progress, stop));
    const Json structured = result.value("structuredContent", Json());
    if (result.value("isError", false)) {
      if (structured.is_object() && structured.contains("error")) return error_of(structured["error"]);
      return fail(ErrorKind::Internal, tool + " failed without saying why");
    }
    return structured.is_null() ? result.value("content", Json::array()) : structured;
  }

  Result<std::string> read_resource(const std::string& uri) override {
    AMK_TRY(result, request("resources/read", {{"uri", uri}}, {}, {}));
    if (!result.contains("contents") || result["contents"].empty()) return fail(ErrorKind::Internal, uri + " has no contents");
    return result["contents"][0].value("text", std::string());
  }

 private:
  Result<Json> request(const std::string& method, Json params, const OnProgress& on_progress, const std::stop_token& stop) {
    const Json id = next_id_++;
    Json meta = {{mcp::kMetaProtocolVersion, mcp::kModernVersion},
                 {mcp::kMetaClientCapabilities, Json::object()},
                 {mcp::kMetaClientInfo, {{"name", "amk-cli"}, {"version", "1"}}}};
    if (on_progress) meta["progressToken"] = id;
    params["_meta"] = std::move(meta);
    const std::string line = canonical_dump(mcp::make_request(id, method, std::move(params)));
    // The daemon may have left since the last call (idle, replaced): then the first send or receive fails, and nothing was begun.
    if (transport_ && !transport_->send(line)) transport_.reset();
    if (!transport_) {
      AMK_TRY(fd, connect_or_start(paths_, launch_));
      transport_ = mcp::fd_transport(fd, fd, 64u << 20);
      if (!transport_->send(line)) return lost(method);
    }
    Result<Json> result = await(id, method, on_progress, stop);
    if (broken_) transport_.reset();
    broken_ = false;
    return result;
  }

  Result<Json> await(const Json& id, const std::string& method, const OnProgress& on_progress, const std::stop_token& stop) {
    std::stop_callback cancel(stop, [&] {
      transport_->send(canonical_dump(mcp::make_notification("notifications/cancelled", {{"requestId", id}})));
      transport_->close();
    });
    for (;;) {
      auto received = transport_->receive();
      if (stop.stop_requested()) {
        broken_ = true;
        return fail(ErrorKind::Cancelled, method + " was cancelled");
      }
      broken_ = !received || !*received;
      if (!received) return tl::unexpected<Error>(std::move(received).error());
      if (!*received) return lost(method);
      auto message = parse_json(**received, "reply", {.max_bytes = 64u << 20});
      if (!message || !message->is_object()) return fail(ErrorKind::Internal, "the daemon sent something that is not a message");
      if (on_progress && message->value("method", "") == "notifications/progress" && (*message)["params"].value("progressToken", Json()) == id) {
        const Json& p = (*message)["params"];
        on_progress({p.value("progress", 0.0), p.value("total", -1.0), p.value("message", std::string())});
      }
      if (!message->contains("id") || (*message)["id"] != id || message->contains("method")) continue;
      if (message->contains("error")) return rpc_error_of((*message)["error"]);
      return (*message)["result"];
    }
  }

  tl::unexpected<Error> lost(const std::string& method) {
    return fail(ErrorKind::Unavailable, "the daemon went away during " + method + "; see " + paths_.logs.string(), {{"log", paths_.logs.string()}});
  }

  const Paths paths_;
  const Launch launch_;
  std::unique_ptr<mcp::Transport> transport_;
  bool broken_ = false;  // the connection is not to be used again
  int next_id_ = 1;
};

class InProcessClient final : public ToolClient {
 public:
  explicit InProcessClient(std::shared_ptr<mcp::Server> server) : server_(std::move(server)) {}

  Result<Json> call(const std::string& tool, const Json& args, const OnProgress& on_progress, std::stop_token stop) override {
    Context context(on_progress, std::move(stop));
    return server_->call_tool(tool, args, context);
  }
  Result<std::string> read_resource(const std::string& uri) override {
    mcp::NullContext context;
    AMK_TRY(content, server_->read_resource(uri, context));
    return std::move(content.text);
  }

 private:
  class Context final : public mcp::NullContext {
   public:
    Context(const OnProgress& on_progress, std::stop_token stop) : NullContext(std::move(stop)), on_progress_(on_progress) {}
    void progress(double done, double total, std::string_view message) override {
      if (!on_progress_) return;
      std::lock_guard lock(mutex_);  // handlers may report from several threads; callers expect one at a time
      on_progress_({done, total, std::string(message)});
    }
    bool wants_progress() const override { return static_cast<bool>(on_progress_); }
    std::string working_directory() const override {
      std::error_code problem;
      return std::filesystem::current_path(problem).string();
    }

   private:
    const OnProgress& on_progress_;
    std::mutex mutex_;
  };
  const std::shared_ptr<mcp::Server> server_;
};

}  // namespace

std::unique_ptr<ToolClient> daemon_client(Paths paths, Launch launch) { return std::make_unique<DaemonClient>(std::move(paths), std::move(launch)); }
std::unique_ptr<ToolClient> in_process_client(std::shared_ptr<mcp::Server> server) { return std::make_unique<InProcessClient>(std::move(server)); }

}  // namespace amk::daemon
