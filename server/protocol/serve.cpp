#include <chrono>
#include <mutex>
#include <thread>

#include "core/base/parse_json.h"
#include "server/protocol/server.h"

namespace amk::mcp {
namespace {

// Outlives the transport where a handler does: after detach() nothing is sent.
class TransportOutlet final : public Outlet {
 public:
  explicit TransportOutlet(Transport& transport) : transport_(&transport) {}
  void send(const Json& message) override {
    std::lock_guard lock(mutex_);
    if (transport_) transport_->send(canonical_dump(message));
  }
  void detach() {
    std::lock_guard lock(mutex_);
    transport_ = nullptr;
  }

 private:
  std::mutex mutex_;
  Transport* transport_;
};

}  // namespace

void serve(Server& server, Transport& transport, double drain_s) {
  const auto outlet = std::make_shared<TransportOutlet>(transport);
  const auto session = server.open(outlet);
  for (;;) {
    auto message = transport.receive();
    if (!message) {
      session->refuse(message.error());
      continue;
    }
    if (!*message) break;
    session->receive(std::string_view(**message));
  }
  // Requests that were piped in before the end of the stream still get their answers, if these come soon.
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(drain_s);
  while (session->requests_in_flight() > 0 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  session->close();
  outlet->detach();
}

}  // namespace amk::mcp
