// One request that is being answered, as the handler holds it: its calls come from any thread and are handed over to the connection's.
// Sees Boost: for the beast_*.cpp files only.
#pragma once

#include <mutex>

#include "server/http/beast_connection.h"

namespace amk::http {

class ExchangeImpl final : public Exchange, public std::enable_shared_from_this<ExchangeImpl> {
 public:
  ExchangeImpl(std::shared_ptr<Shared> shared, const std::shared_ptr<Connection>& connection) : shared_(std::move(shared)), connection_(connection) {}

  void reply(Reply r) override;
  void start_events(Headers headers) override;
  void send_events(std::string text) override;
  void finish_events() override;
  void on_closed(std::function<void()> call) override;
  void after(std::chrono::milliseconds delay, std::function<void()> call) override;

  // On the io thread: the client went away, or the answer is complete.
  void gone();
  void over();

 private:
  using Work = std::function<void(Connection&, ExchangeImpl*)>;
  void run(Work work);

  std::mutex mutex_;
  std::deque<Work> work_;
  const std::shared_ptr<Shared> shared_;
  // io thread:
  std::shared_ptr<Connection> connection_;  // until the answer is complete: nothing else may hold it meanwhile
  bool over_ = false, gone_ = false;
  std::function<void()> on_closed_;
  std::deque<asio::steady_timer> timers_;
};

}  // namespace amk::http
