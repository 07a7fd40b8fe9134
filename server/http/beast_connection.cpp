#include "server/http/beast_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <new>
#include <system_error>

#include "server/http/beast_exchange.h"

namespace amk::http {
namespace {

bool peer_is_gone(const ErrorCode& problem) {
  return problem && (problem == asio::error::eof || problem.category() == asio::error::get_system_category());
}

}  // namespace

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
  expect_body(0);
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

void Connection::on_head(ErrorCode problem) {
  if (closed_) return;
  if (problem == beast::http::error::header_limit) return send_and_close(431, "the headers are too large");
  if (problem == beast::http::error::body_limit) return send_and_close(413, "the body is too large");
  if (peer_is_gone(problem) || problem == beast::http::error::end_of_stream) return drop();
  if (problem) return send_and_close(400, "malformed request: " + problem.message());
  if (const auto why = bad_head(parser_->get())) return send_and_close(400, *why);

  const auto& head = parser_->get();
  http10_ = head.version() == 10;
  close_after_ = !head.keep_alive();
  request_ = request_of(head);
  if (auto refused = shared_->handler->admit(request_)) {
    // Its body is not worth reading.
    close_after_ = true;
    answer_ = Answer::Pending;
    return reply(nullptr, *std::move(refused));
  }
  // A large body has its place before it is read. How large one without a length gets is not known, so that it gets less.
  constexpr std::size_t kSmall = 64u << 10;
  const std::size_t most = shared_->options.max_body_bytes / 4;
  if (parser_->chunked()) parser_->body_limit(most);
  const std::size_t length = parser_->content_length().value_or(parser_->chunked() ? most : 0);
  expect_body(length > kSmall ? length : 0);
  if (shared_->body_bytes > shared_->options.max_bodies_bytes) return send_and_close(503, "too many large bodies are arriving at once");
  if (const std::string* expect = request_.header("expect")) {
    if (lower(*expect) != "100-continue") return send_and_close(417, "no expectation but 100-continue is understood");
    if (!parser_->is_done()) write("HTTP/1.1 100 Continue\r\n\r\n");
  }
  read_body();
}

void Connection::expect_body(std::size_t bytes) {
  shared_->body_bytes += bytes;
  shared_->body_bytes -= std::exchange(expected_bytes_, bytes);
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
  try {
    shared_->handler->handle(std::move(request_), exchange_);
  } catch (const std::exception& e) {
    failed(e);
  }
  expect_body(0);
}

// What nobody foresaw of one request (no memory, a mistake of ours) must not end the server of all.
void Connection::failed(const std::exception& e) {
  if (answer_ != Answer::Pending) return drop();
  close_after_ = true;
  const bool later = dynamic_cast<const std::bad_alloc*>(&e) != nullptr || dynamic_cast<const std::system_error*>(&e) != nullptr;
  reply(nullptr, {later ? 503 : 500, "text/plain; charset=utf-8",
                  std::string(later ? "no memory or thread for this: " : "failed unexpectedly: ") + e.what() + "\n"});
}

void Connection::watch_for_close() {
  // While an answer is pending nothing is read; but the end of the stream must be seen, since it cancels.
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this(), mine = exchange_](ErrorCode problem) {
    if (self->closed_ || self->exchange_ != mine || !mine) return;
    // More bytes are the next request, sent early: it waits, and with it the watch (the socket stays readable).
    switch (problem ? Peer::Gone : self->peer()) {
      case Peer::Open:
        return;
      case Peer::Silent:
        return self->on_half_close();
      case Peer::Gone:
        return self->drop();
    }
  });
}

Connection::Peer Connection::peer() {
  char c;
  const ssize_t n = ::recv(socket_.native_handle(), &c, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 ? Peer::Silent : n > 0 || errno == EAGAIN ? Peer::Open : Peer::Gone;
}

// The client sends nothing more. Whether he still reads TCP does not say; but who does not answers the next byte with a reset (RFC 9293, 3.10.7.1).
// So the answer goes on: an event stream is asked at once, with a comment, and any call that takes time becomes one; what has not begun to answer
// after a moment cannot be asked, and is taken for left.
void Connection::on_half_close() {
  half_closed_ = close_after_ = true;
  watch_for_reset();
  if (answer_ == Answer::Events && !finished_) write(chunk(":\n\n"));
  if (answer_ == Answer::Pending) arm(shared_->options.half_closed);
}

void Connection::watch_for_reset() {
  socket_.async_wait(tcp::socket::wait_error, [self = shared_from_this(), mine = exchange_](ErrorCode problem) {
    if (self->closed_ || self->exchange_ != mine || !mine) return;
    // Once the end has come, reading tells of nothing else.
    pollfd p{self->socket_.native_handle(), 0, 0};
    if (problem || (::poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP)) != 0)) return self->drop();
    self->watch_for_reset();
  });
}

}  // namespace amk::http
