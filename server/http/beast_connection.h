// One connection: requests come in one at a time (beast_connection.cpp), each is answered (beast_answer.cpp) before the next is read.
// Everything of a connection happens on the one thread that runs the io_context. Sees Boost: for the beast_*.cpp files only.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>  // Boost 1.74 uses std::exchange without it
#include <vector>

#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "server/http/beast_head.h"
#include "server/http/http_server.h"

namespace amk::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
using tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

class Connection;
class ExchangeImpl;

// What the connections of one server share.
struct Shared {
  Options options;
  std::shared_ptr<Handler> handler;
  asio::io_context io{1};
  std::set<Connection*> connections;  // io thread
  std::atomic<int> count{0};
  std::size_t body_bytes = 0;  // that are arriving: io thread

  // From any thread. What is posted once nothing runs it any more is dropped: it owns connections, which own this, which owns the context that it
  // would wait in, for good.
  template <class Function>
  void post(Function&& function) {
    const std::lock_guard lock(posting);
    if (!stopped) asio::post(io, std::forward<Function>(function));
  }
  std::mutex posting;
  bool stopped = false;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Shared> shared, tcp::socket socket)
      : shared_(std::move(shared)), socket_(std::move(socket)), deadline_(shared_->io), keep_alive_(shared_->io) {
    shared_->connections.insert(this);
    ++shared_->count;
  }
  ~Connection() {
    shared_->connections.erase(this);
    --shared_->count;
    expect_body(0);
  }

  void start() { next_request(); }
  void refuse_overload() { send_and_close(503, "too many connections"); }
  void shut_down();
  void drop();

  // Called by the exchange, on the io thread.
  void reply(ExchangeImpl* from, Reply r);
  void start_events(ExchangeImpl* from, const Headers& headers);
  void send_events(ExchangeImpl* from, const std::string& text);
  void finish_events(ExchangeImpl* from);

 private:
  using Parser = beast::http::request_parser<beast::http::string_body>;
  enum class Answer { None, Pending, Events, Whole };  // what the current exchange is at

  void next_request();
  void read_head();
  void on_head(ErrorCode problem);
  void expect_body(std::size_t bytes);
  void read_body();
  void on_body(ErrorCode problem);
  void failed(const std::exception& e);
  enum class Peer { Open, Silent, Gone };
  Peer peer();
  void watch_for_close();
  void on_half_close();
  void watch_for_reset();
  void write(std::string text, bool last = false);
  void write_next();
  void written();
  void send_and_close(int status, const std::string& text);
  void linger();
  void discard();
  void arm(std::chrono::milliseconds limit, int timeout_status = 0);
  void disarm() { deadline_.cancel(); }
  void keep_alive();
  std::string chunk(const std::string& text) const;

  const std::shared_ptr<Shared> shared_;
  tcp::socket socket_;
  asio::steady_timer deadline_, keep_alive_;
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  Request request_;
  std::shared_ptr<ExchangeImpl> exchange_;
  Answer answer_ = Answer::None;
  std::deque<std::string> unsent_, sending_;
  std::size_t unsent_bytes_ = 0, expected_bytes_ = 0;
  bool writing_ = false, http10_ = false, close_after_ = false, finished_ = false, closed_ = false, quiet_ = true, half_closed_ = false;
  char discarded_[4096];
};

}  // namespace amk::http
