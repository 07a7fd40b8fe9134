#include "server/http/beast_exchange.h"

namespace amk::http {

void ExchangeImpl::reply(Reply r) {
  run([r = std::move(r)](Connection& c, ExchangeImpl* self) mutable { c.reply(self, std::move(r)); });
}

void ExchangeImpl::start_events(Headers headers) {
  run([headers = std::move(headers)](Connection& c, ExchangeImpl* self) { c.start_events(self, headers); });
}

void ExchangeImpl::send_events(std::string text) {
  run([text = std::move(text)](Connection& c, ExchangeImpl* self) { c.send_events(self, text); });
}

void ExchangeImpl::finish_events() {
  run([](Connection& c, ExchangeImpl* self) { c.finish_events(self); });
}

void ExchangeImpl::on_closed(std::function<void()> call) {
  shared_->post([self = shared_from_this(), call = std::move(call)]() mutable {
    if (self->over_) return;
    if (self->gone_)
      call();
    else
      self->on_closed_ = std::move(call);
  });
}

void ExchangeImpl::after(std::chrono::milliseconds delay, std::function<void()> call) {
  shared_->post([self = shared_from_this(), delay, call = std::move(call)]() mutable {
    if (self->over_ || self->gone_) return;
    self->timers_.emplace_back(self->shared_->io, delay);
    self->timers_.back().async_wait([self, call = std::move(call)](ErrorCode problem) {
      if (!problem && !self->over_ && !self->gone_) call();
    });
  });
}

void ExchangeImpl::gone() {
  if (over_ || gone_) return;
  gone_ = true;
  connection_.reset();
  timers_.clear();  // cancels; the handlers hold us until they have run
  if (on_closed_) std::exchange(on_closed_, nullptr)();
}

void ExchangeImpl::over() {
  over_ = true;
  connection_.reset();
  timers_.clear();
  on_closed_ = nullptr;
}

// Work runs in the order in which it was handed over, whatever the threads: posting alone does not promise that, since asio keeps what the
// io thread itself posts apart until its handler returns. An event said right after the headers would overtake them and be lost.
void ExchangeImpl::run(Work work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  shared_->post([self = shared_from_this()] {
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

}  // namespace amk::http
