// The server on Boost.Asio and Boost.Beast. Chosen over the packaged cpp-httplib (0.11.4), which holds one thread for as long as a response
// lasts: 200 idle event streams would be 200 threads, or a pool that they exhaust. Beast's parser also refuses what smuggling needs: bare
// line feeds, both Content-Length and Transfer-Encoding, repeated lengths, spaces before colons.
//
// Everything of a connection happens on the one thread that runs the io_context; Exchange hands its calls over to it.
#include <sys/socket.h>

#include <atomic>
#include <utility>  // Boost 1.74 uses std::exchange without it

#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "server/http/http_server.h"

namespace amk::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using Headers = std::vector<std::pair<std::string, std::string>>;

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

bool peer_is_gone(const ErrorCode& problem) {
  return problem && (problem == asio::error::eof || problem.category() == asio::error::get_system_category());
}

std::string head_text(int status, const Headers& headers) {
  std::string out = "HTTP/1.1 " + std::to_string(status) + " " + std::string(reason(status)) + "\r\n";
  for (const auto& [name, value] : headers) out += name + ": " + value + "\r\n";
  // Nothing that we send may be stored, guessed at or framed.
  return out + "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
}

class Connection;

struct Shared {
  Options options;
  std::shared_ptr<Handler> handler;
  asio::io_context io{1};
  std::set<Connection*> connections;  // io thread
  std::atomic<int> count{0};
};

class ExchangeImpl;

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
  void read_body();
  void on_body(ErrorCode problem);
  std::optional<std::string> bad_head() const;
  void watch_for_close();
  void write(std::string text);
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
  std::deque<std::string> unsent_;
  std::size_t unsent_bytes_ = 0;
  bool writing_ = false, http10_ = false, close_after_ = false, finished_ = false, closed_ = false, quiet_ = true;
  char discarded_[4096];
};

class ExchangeImpl final : public Exchange, public std::enable_shared_from_this<ExchangeImpl> {
 public:
  ExchangeImpl(std::shared_ptr<Shared> shared, const std::shared_ptr<Connection>& connection) : shared_(std::move(shared)), connection_(connection) {}

  void reply(Reply r) override {
    run([r = std::move(r)](Connection& c, ExchangeImpl* self) mutable { c.reply(self, std::move(r)); });
  }
  void start_events(Headers headers) override {
    run([headers = std::move(headers)](Connection& c, ExchangeImpl* self) { c.start_events(self, headers); });
  }
  void send_events(std::string text) override {
    run([text = std::move(text)](Connection& c, ExchangeImpl* self) { c.send_events(self, text); });
  }
  void finish_events() override {
    run([](Connection& c, ExchangeImpl* self) { c.finish_events(self); });
  }
  void on_closed(std::function<void()> call) override {
    asio::post(shared_->io, [self = shared_from_this(), call = std::move(call)]() mutable {
      if (self->over_) return;
      if (self->gone_)
        call();
      else
        self->on_closed_ = std::move(call);
    });
  }
  void after(std::chrono::milliseconds delay, std::function<void()> call) override {
    asio::post(shared_->io, [self = shared_from_this(), delay, call = std::move(call)]() mutable {
      if (self->over_ || self->gone_) return;
      self->timers_.emplace_back(self->shared_->io, delay);
      self->timers_.back().async_wait([self, call = std::move(call)](ErrorCode problem) {
        if (!problem && !self->over_ && !self->gone_) call();
      });
    });
  }

  // io thread
  void gone() {
    if (over_ || gone_) return;
    gone_ = true;
    connection_.reset();
    timers_.clear();  // cancels; the handlers hold us until they have run
    if (on_closed_) std::exchange(on_closed_, nullptr)();
  }
  void over() {
    over_ = true;
    connection_.reset();
    timers_.clear();
    on_closed_ = nullptr;
  }

 private:
  // Work runs in the order in which it was handed over, whatever the threads: posting alone does not promise that, since asio keeps what the
  // io thread itself posts apart until its handler returns. An event said right after the headers would overtake them and be lost.
  using Work = std::function<void(Connection&, ExchangeImpl*)>;
  void run(Work work) {
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    asio::post(shared_->io, [self = shared_from_this()] {
      Work next;
      {
        const std::lock_guard lock(self->mutex_);
        next = std::move(self->work_.front());
        self->work_.pop_front();
      }
      if (self->over_ || self->gone_) return;
      const auto connection = self->connection_;  // the work may end our hold on it
      next(*connection, self.get());
    });
  }

  std::mutex mutex_;
  std::deque<Work> work_;
  const std::shared_ptr<Shared> shared_;
  // io thread:
  std::shared_ptr<Connection> connection_;  // until the answer is complete: nothing else may hold it meanwhile
  bool over_ = false, gone_ = false;
  std::function<void()> on_closed_;
  std::deque<asio::steady_timer> timers_;
};

void Connection::arm(std::chrono::milliseconds limit, int timeout_status) {
  deadline_.expires_after(limit);
  deadline_.async_wait([weak = weak_from_this(), timeout_status](ErrorCode problem) {
    const auto self = weak.lock();
    if (problem || !self) return;
    // A slow sender is told once and not waited for.
    if (timeout_status && !self->writing_) return self->send_and_close(timeout_status, "the request took too long to arrive");
    self->drop();
  });
}

void Connection::drop() {
  if (closed_) return;
  closed_ = true;
  ErrorCode ignored;
  deadline_.cancel();
  keep_alive_.cancel();
  socket_.close(ignored);
  if (exchange_) std::exchange(exchange_, nullptr)->gone();
}

void Connection::shut_down() {
  if (answer_ == Answer::Events) {
    close_after_ = true;
    finish_events(exchange_.get());
  } else {
    drop();
  }
}

void Connection::next_request() {
  answer_ = Answer::None;
  finished_ = false;
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(shared_->options.max_header_bytes));
  parser_->body_limit(shared_->options.max_body_bytes);
  if (buffer_.size() > 0) return read_head();
  arm(shared_->options.idle_timeout);
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](ErrorCode problem) {
    if (self->closed_) return;
    if (problem) return self->drop();
    self->read_head();
  });
}

void Connection::read_head() {
  arm(shared_->options.header_timeout, 408);
  beast::http::async_read_header(socket_, buffer_, *parser_, [self = shared_from_this()](ErrorCode problem, std::size_t) { self->on_head(problem); });
}

// What Beast's parser lets pass and we do not.
std::optional<std::string> Connection::bad_head() const {
  const auto& head = parser_->get();
  if (head.version() != 11 && head.version() != 10) return "HTTP/1.1 is spoken here";
  int lengths = 0, encodings = 0;
  for (const auto& field : head) {
    const std::string name = lower({field.name_string().data(), field.name_string().size()});
    lengths += name == "content-length";
    encodings += name == "transfer-encoding";
    for (const char c : field.value())
      if (static_cast<unsigned char>(c) < 0x20 && c != '\t') return "a header value has a control character";
  }
  if (lengths > 1 || encodings > 1 || (lengths && encodings)) return "the length of the body is ambiguous";
  const std::string encoding = lower({head["Transfer-Encoding"].data(), head["Transfer-Encoding"].size()});
  if (encodings && (encoding != "chunked" || head.version() == 10)) return "no transfer coding but chunked is understood";
  const auto target = head.target();
  if (target.empty() || (target[0] != '/' && target != "*")) return "the target must be a path";
  return std::nullopt;
}

void Connection::on_head(ErrorCode problem) {
  if (closed_) return;
  if (problem == beast::http::error::header_limit) return send_and_close(431, "the headers are too large");
  if (problem == beast::http::error::body_limit) return send_and_close(413, "the body is too large");
  if (peer_is_gone(problem) || problem == beast::http::error::end_of_stream) return drop();
  if (problem) return send_and_close(400, "malformed request: " + problem.message());
  if (const auto why = bad_head()) return send_and_close(400, *why);

  const auto& head = parser_->get();
  http10_ = head.version() == 10;
  close_after_ = !head.keep_alive();
  request_ = {};
  request_.method = std::string(head.method_string());
  const std::string target(head.target());
  const std::size_t question = target.find('?');
  request_.path = target.substr(0, question);
  if (question != std::string::npos) request_.query = target.substr(question + 1);
  for (const auto& field : head)
    request_.headers.emplace_back(lower({field.name_string().data(), field.name_string().size()}), std::string(field.value()));
  if (auto refused = shared_->handler->admit(request_)) {
    // Its body is not worth reading.
    close_after_ = true;
    answer_ = Answer::Pending;
    return reply(nullptr, *std::move(refused));
  }
  if (const std::string* expect = request_.header("expect")) {
    if (lower(*expect) != "100-continue") return send_and_close(417, "no expectation but 100-continue is understood");
    if (!parser_->is_done()) write("HTTP/1.1 100 Continue\r\n\r\n");
  }
  read_body();
}

void Connection::read_body() {
  arm(shared_->options.body_timeout, 408);
  beast::http::async_read(socket_, buffer_, *parser_, [self = shared_from_this()](ErrorCode problem, std::size_t) { self->on_body(problem); });
}

void Connection::on_body(ErrorCode problem) {
  if (closed_) return;
  if (problem == beast::http::error::body_limit) return send_and_close(413, "the body is too large");
  if (peer_is_gone(problem) || problem == beast::http::error::partial_message) return drop();
  if (problem) return send_and_close(400, "malformed body: " + problem.message());
  disarm();
  request_.body = std::move(parser_->get().body());
  answer_ = Answer::Pending;
  exchange_ = std::make_shared<ExchangeImpl>(shared_, shared_from_this());
  watch_for_close();
  shared_->handler->handle(std::move(request_), exchange_);
}

void Connection::watch_for_close() {
  // While an answer is pending nothing is read; but the end of the stream must be seen, since it cancels.
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this(), mine = exchange_](ErrorCode problem) {
    if (self->closed_ || self->exchange_ != mine || !mine) return;
    char c;
    const ssize_t n = problem ? 0 : ::recv(self->socket_.native_handle(), &c, 1, MSG_PEEK | MSG_DONTWAIT);
    // More bytes are the next request, sent early: it waits, and with it the watch (the socket stays readable).
    if (n == 0 || (n < 0 && errno != EAGAIN)) self->drop();
  });
}

void Connection::reply(ExchangeImpl* from, Reply r) {
  if (closed_ || answer_ != Answer::Pending || (from && from != exchange_.get())) return;
  answer_ = Answer::Whole;
  Headers headers = std::move(r.headers);
  if (!r.content_type.empty()) headers.emplace_back("Content-Type", r.content_type);
  if (r.status != 204 && r.status != 304) headers.emplace_back("Content-Length", std::to_string(r.body.size()));
  headers.emplace_back("Connection", close_after_ ? "close" : "keep-alive");
  std::string text = head_text(r.status, headers) + "\r\n";
  if (request_.method != "HEAD") text += r.body;
  finished_ = true;
  if (exchange_) std::exchange(exchange_, nullptr)->over();
  write(std::move(text));
}

void Connection::start_events(ExchangeImpl* from, const Headers& extra) {
  if (closed_ || answer_ != Answer::Pending || from != exchange_.get()) return;
  answer_ = Answer::Events;
  Headers headers = extra;
  headers.emplace_back("Content-Type", "text/event-stream");
  headers.emplace_back("X-Accel-Buffering", "no");
  if (http10_)
    close_after_ = true;
  else
    headers.emplace_back("Transfer-Encoding", "chunked");
  headers.emplace_back("Connection", close_after_ ? "close" : "keep-alive");
  write(head_text(200, headers) + "\r\n");
  keep_alive();
}

std::string Connection::chunk(const std::string& text) const {
  if (http10_) return text;
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return size + text + "\r\n";
}

void Connection::send_events(ExchangeImpl* from, const std::string& text) {
  if (closed_ || answer_ != Answer::Events || finished_ || from != exchange_.get() || text.empty()) return;
  quiet_ = false;
  write(chunk(text));
}

void Connection::finish_events(ExchangeImpl* from) {
  if (closed_ || answer_ != Answer::Events || finished_ || from != exchange_.get()) return;
  finished_ = true;
  keep_alive_.cancel();
  std::exchange(exchange_, nullptr)->over();
  write(http10_ ? std::string() : "0\r\n\r\n");
}

void Connection::keep_alive() {
  keep_alive_.expires_after(shared_->options.keep_alive);
  keep_alive_.async_wait([weak = weak_from_this()](ErrorCode problem) {
    const auto self = weak.lock();
    if (problem || !self || self->closed_ || self->answer_ != Answer::Events || self->finished_) return;
    if (std::exchange(self->quiet_, true)) self->write(self->chunk(":\n\n"));
    self->keep_alive();
  });
}

void Connection::write(std::string text) {
  unsent_bytes_ += text.size();
  if (unsent_bytes_ > shared_->options.max_unsent_bytes) return drop();  // a client that does not read
  unsent_.push_back(std::move(text));
  if (!writing_) write_next();
}

void Connection::write_next() {
  writing_ = true;
  arm(shared_->options.write_timeout);
  asio::async_write(socket_, asio::buffer(unsent_.front()), [self = shared_from_this()](ErrorCode problem, std::size_t) {
    if (self->closed_) return;
    if (problem) return self->drop();
    self->unsent_bytes_ -= self->unsent_.front().size();
    self->unsent_.pop_front();
    self->written();
  });
}

void Connection::written() {
  if (!unsent_.empty()) return write_next();
  writing_ = false;
  disarm();
  if (answer_ == Answer::None) return arm(shared_->options.body_timeout, 408);  // that was the 100 Continue
  if (!finished_) return;
  if (close_after_) return linger();
  next_request();
}

void Connection::send_and_close(int status, const std::string& text) {
  close_after_ = true;
  answer_ = Answer::Pending;
  exchange_.reset();
  reply(nullptr, {status, "text/plain; charset=utf-8", text + "\n"});
}

void Connection::linger() {
  // Closing while input is unread makes the kernel reset the connection, and the client may lose the reply: read on for a moment.
  ErrorCode ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  arm(std::chrono::milliseconds(1'000));
  discard();
}

void Connection::discard() {
  socket_.async_read_some(asio::buffer(discarded_), [self = shared_from_this()](ErrorCode problem, std::size_t) {
    if (self->closed_) return;
    if (problem) return self->drop();
    self->discard();
  });
}

class BeastServer final : public Server {
 public:
  BeastServer(std::shared_ptr<Shared> shared, tcp::acceptor acceptor)
      : shared_(std::move(shared)), acceptor_(std::move(acceptor)), port_(acceptor_.local_endpoint().port()), pause_(shared_->io) {
    accept();
    thread_ = std::thread([this] { shared_->io.run(); });
  }
  ~BeastServer() override { BeastServer::stop(); }

  std::uint16_t port() const override { return port_; }
  int connections() const override { return shared_->count; }

  void stop() override {
    if (!thread_.joinable()) return;
    asio::post(shared_->io, [this] {
      ErrorCode ignored;
      acceptor_.close(ignored);
      pause_.cancel();
      for (const auto& c : open_connections()) c->shut_down();
    });
    // Streams that end politely need a moment; nobody may take longer.
    for (int i = 0; i < 100 && shared_->count > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    asio::post(shared_->io, [this] {
      for (const auto& c : open_connections()) c->drop();
    });
    // With the acceptor, every socket and every timer closed the context runs out of work. Stopping it instead would leave handlers
    // behind that own connections, which own the context.
    thread_.join();
  }

 private:
  std::vector<std::shared_ptr<Connection>> open_connections() const {
    std::vector<std::shared_ptr<Connection>> open;
    for (Connection* c : shared_->connections)
      if (auto alive = c->weak_from_this().lock()) open.push_back(std::move(alive));
    return open;
  }

  void accept() {
    acceptor_.async_accept([this](ErrorCode problem, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (problem) {
        // Out of descriptors: try again in a while instead of spinning.
        pause_.expires_after(std::chrono::milliseconds(50));
        pause_.async_wait([this](ErrorCode cancelled) {
          if (!cancelled) accept();
        });
        return;
      }
      ErrorCode ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      const auto connection = std::make_shared<Connection>(shared_, std::move(socket));
      if (shared_->count > shared_->options.max_connections)
        connection->refuse_overload();
      else
        connection->start();
      accept();
    });
  }

  const std::shared_ptr<Shared> shared_;
  tcp::acceptor acceptor_;
  const std::uint16_t port_;
  asio::steady_timer pause_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::start(Options options, std::shared_ptr<Handler> handler) {
  auto shared = std::make_shared<Shared>();
  shared->options = std::move(options);
  shared->handler = std::move(handler);
  const std::string where = shared->options.address + ":" + std::to_string(shared->options.port);
  ErrorCode problem;
  const auto address = asio::ip::make_address(shared->options.address, problem);
  if (problem) return bad_field("address", shared->options.address, "an IP address, e.g. 127.0.0.1 or ::1");
  const tcp::endpoint endpoint(address, shared->options.port);
  tcp::acceptor acceptor(shared->io);
  acceptor.open(endpoint.protocol(), problem);
  if (!problem) acceptor.set_option(tcp::acceptor::reuse_address(true), problem);
  if (!problem) acceptor.bind(endpoint, problem);
  if (!problem) acceptor.listen(asio::socket_base::max_listen_connections, problem);
  if (problem) return fail(ErrorKind::Unavailable, "cannot listen on " + where + ": " + problem.message(), {{"address", where}});
  return std::make_unique<BeastServer>(std::move(shared), std::move(acceptor));
}

}  // namespace amk::http
