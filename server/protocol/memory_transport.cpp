#include <condition_variable>
#include <deque>
#include <mutex>

#include "server/protocol/transport.h"

namespace amk::mcp {
namespace {

struct Pipe {
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<std::string> messages;
  bool closed = false;

  void close() {
    std::lock_guard lock(mutex);
    closed = true;
    arrived.notify_all();
  }
};

class MemoryTransport final : public Transport {
 public:
  MemoryTransport(std::shared_ptr<Pipe> in, std::shared_ptr<Pipe> out) : in_(std::move(in)), out_(std::move(out)) {}
  ~MemoryTransport() override { MemoryTransport::close(); }

  bool send(std::string_view message) override {
    std::lock_guard lock(out_->mutex);
    if (out_->closed) return false;
    out_->messages.emplace_back(message);
    out_->arrived.notify_one();
    return true;
  }
  Result<std::optional<std::string>> receive() override {
    std::unique_lock lock(in_->mutex);
    in_->arrived.wait(lock, [&] { return in_->closed || !in_->messages.empty(); });
    if (in_->messages.empty()) return std::nullopt;
    std::string message = std::move(in_->messages.front());
    in_->messages.pop_front();
    return message;
  }
  void close() override {
    in_->close();
    out_->close();
  }

 private:
  const std::shared_ptr<Pipe> in_, out_;
};

}  // namespace

std::pair<std::unique_ptr<Transport>, std::unique_ptr<Transport>> memory_transport_pair() {
  const auto a = std::make_shared<Pipe>(), b = std::make_shared<Pipe>();
  return {std::make_unique<MemoryTransport>(a, b), std::make_unique<MemoryTransport>(b, a)};
}

}  // namespace amk::mcp
