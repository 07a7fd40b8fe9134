// A client for tests: sends messages to a session and collects what comes back.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/protocol/server.h"
#include "tests/support/patience.h"

namespace amk::testing {

class Peer {
 public:
  explicit Peer(mcp::Server& server) : box_(std::make_shared<Box>()), session_(server.open(box_)) {}
  ~Peer() { session_->close(); }

  mcp::Session& session() { return *session_; }
  void send(const Json& message) { session_->receive(message); }
  void send_text(std::string_view text) { session_->receive(text); }
  void notify(const std::string& method, Json params = Json::object()) {
    send({{"jsonrpc", "2.0"}, {"method", method}, {"params", std::move(params)}});
  }

  // Sends a request and waits for its reply (the whole message).
  Json request(const std::string& method, Json params = Json::object(), Json id = nullptr) {
    if (id.is_null()) id = next_id_++;
    send({{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", std::move(params)}});
    return reply(id);
  }
  // A 2026-07-28 request.
  Json modern(const std::string& method, Json params = Json::object(), Json capabilities = Json::object()) {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28";
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = std::move(capabilities);
    return request(method, std::move(params));
  }
  Json initialize(const std::string& version = "2025-11-25", Json capabilities = Json::object()) {
    return request("initialize",
                   {{"protocolVersion", version}, {"capabilities", std::move(capabilities)}, {"clientInfo", {{"name", "test"}, {"version", "0"}}}});
  }
  Json call(const std::string& tool, Json args = Json::object()) {
    return request("tools/call", {{"name", tool}, {"arguments", std::move(args)}})["result"];
  }

  // The reply with this id; null (and a failed check) if none comes.
  Json reply(const Json& id) {
    return wait([&](const Json& m) { return m.contains("id") && m["id"] == id && !m.contains("method"); });
  }
  template <class Predicate>
  Json wait(Predicate wanted, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    std::unique_lock lock(box_->mutex);
    Json found;
    const bool ok = box_->arrived.wait_for(lock, limit * amk::testing::kPatience, [&] {
      for (const Json& m : box_->messages)
        if (wanted(m)) {
          found = m;
          return true;
        }
      return false;
    });
    CHECK_MESSAGE(ok, "the expected message did not come");
    return found;
  }
  std::vector<Json> messages() const {
    std::lock_guard lock(box_->mutex);
    return box_->messages;
  }
  void clear() {
    std::lock_guard lock(box_->mutex);
    box_->messages.clear();
  }

 private:
  struct Box final : mcp::Outlet {
    void send(const Json& message) override {
      std::lock_guard lock(mutex);
      messages.push_back(message);
      arrived.notify_all();
    }
    mutable std::mutex mutex;
    std::condition_variable arrived;
    std::vector<Json> messages;
  };
  std::shared_ptr<Box> box_;
  std::shared_ptr<mcp::Session> session_;
  int next_id_ = 1;
};

}  // namespace amk::testing
