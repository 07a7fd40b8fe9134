// One peer's state and the dispatch of its messages. Internal to this folder.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "server/protocol/json_rpc.h"
#include "server/protocol/server_impl.h"

namespace amk::mcp {

class SessionImpl final : public Session, public PeerRequests {
 public:
  SessionImpl(std::shared_ptr<Server::Impl> server, std::shared_ptr<Outlet> outlet);
  ~SessionImpl() override;

  void receive(std::string_view text, std::shared_ptr<Outlet> outlet) override;
  void receive(Json message, std::shared_ptr<Outlet> outlet) override;
  void refuse(const Error& error) override;
  void set_working_directory(std::string path) override;
  void close() override;
  void cancel(const Outlet* outlet) override;
  int requests_in_flight() const override;
  bool initialized() const override;
  std::string protocol_version() const override;

  void resource_updated(const std::string& uri);
  void list_changed(const std::string& list);
  void end_subscriptions();  // the server is shutting down

 private:
  // A subscriptions/listen stream (2026-07-28).
  struct Listener {
    std::shared_ptr<Outlet> outlet;
    Json id;
    std::set<std::string> uris, lists;
  };
  struct PendingRequest {
    bool done = false;
    Json result, error;
  };

  void handle(Message message, const std::shared_ptr<Outlet>& outlet);
  void handle_request(Message message, const std::shared_ptr<Outlet>& outlet);
  void handle_notification(const Message& message);
  void handle_response(Message message);

  // Fills in what the era's rules say; an error is the reply.
  tl::expected<CallInfo, RpcError> describe(const Message& message) const;
  tl::expected<CallInfo, RpcError> describe_modern(const Message& message, const Json& meta) const;

  MethodResult initialize(const Json& params);
  MethodResult discover() const;
  MethodResult set_level(const Json& params);
  MethodResult subscribe(const Json& params, bool on);
  void listen(const CallInfo& info, const Json& params, const std::shared_ptr<Outlet>& outlet);

  void start(std::shared_ptr<Call> call, Json params);
  void run(const std::shared_ptr<Call>& call, const Json& params);
  void finish(Call& call, MethodResult result);
  void forget(const Call& call);
  void watch(const std::shared_ptr<Call>& call);  // heartbeat and deadline
  Json decorate(const CallInfo& info, Json result) const;

  Result<Json> request(Outlet& outlet, const std::string& method, const Json& params, std::stop_token stop) override;

  const std::shared_ptr<Server::Impl> server_;
  const std::shared_ptr<Outlet> outlet_;

  mutable std::mutex mutex_;
  bool closed_ = false;
  std::string version_;  // negotiated legacy revision; empty before initialize
  Json client_capabilities_ = Json::object();
  std::string client_name_;
  std::string working_directory_;
  LogLevel log_level_ = LogLevel::Info;                 // legacy; the revision leaves the level before logging/setLevel to the server
  std::set<std::string> subscriptions_;                 // legacy
  std::map<std::string, std::shared_ptr<Call>> calls_;  // by dumped id
  std::map<std::string, Listener> listeners_;           // by dumped id
  std::map<std::string, PendingRequest*> requests_;     // ours to the client, by dumped id
  std::condition_variable response_arrived_;
  std::uint64_t next_request_ = 1;
};

}  // namespace amk::mcp
