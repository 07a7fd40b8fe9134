// The answering half of a connection.
#include "server/http/beast_exchange.h"

namespace amk::http {

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
  if (half_closed_) write(chunk(":\n\n"));  // nothing but the second write of two is refused for certain
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
  write(http10_ ? std::string() : "0\r\n\r\n", true);
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

void Connection::write(std::string text, bool last) {
  // A client that does not read. One message may be larger than that: its size is bounded where it is made.
  if (!last && unsent_bytes_ > shared_->options.max_unsent_bytes) return drop();
  unsent_bytes_ += text.size();
  unsent_.push_back(std::move(text));
  if (!writing_) write_next();
}

void Connection::write_next() {
  writing_ = true;
  arm(shared_->options.write_timeout);
  // What waits leaves in one call, so that the last event and the end of its stream are one packet; but little enough of it that the time
  // limit of a write stays one of progress.
  constexpr std::size_t kAtOnce = 64u << 10;
  std::size_t bytes_now = 0;
  std::vector<asio::const_buffer> parts;
  while (!unsent_.empty() && bytes_now < kAtOnce) {
    bytes_now += unsent_.front().size();
    sending_.push_back(std::move(unsent_.front()));
    unsent_.pop_front();
  }
  for (const std::string& part : sending_) parts.push_back(asio::buffer(part));
  asio::async_write(socket_, parts, [self = shared_from_this()](ErrorCode problem, std::size_t bytes) {
    if (self->closed_) return;
    if (problem) return self->drop();
    self->unsent_bytes_ -= bytes;
    self->sending_.clear();
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
  expect_body(0);
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

}  // namespace amk::http
