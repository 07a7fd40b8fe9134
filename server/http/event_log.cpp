#include "server/http/event_log.h"

#include <charconv>

namespace amk::http {

std::string event_text(const std::string& id, const std::string& data) {
  // Data is JSON on one line: it holds no line break that would end the field.
  return "event: message\n" + (id.empty() ? std::string() : "id: " + id + "\n") + "data: " + data + "\n\n";
}

bool parse_event_id(const std::string& id, std::string& name, std::uint64_t& number) {
  const std::size_t dash = id.rfind('-');
  if (dash == std::string::npos || dash == 0) return false;
  const char* last = id.data() + id.size();
  const auto [end, problem] = std::from_chars(id.data() + dash + 1, last, number);
  if (problem != std::errc() || end != last) return false;
  name = id.substr(0, dash);
  return true;
}

EventLog::EventLog(std::string name, std::size_t max_events, std::size_t max_bytes, std::shared_ptr<std::atomic<std::size_t>> kept)
    : name_(std::move(name)), max_events_(max_events), max_bytes_(max_bytes), kept_(std::move(kept)) {}
EventLog::~EventLog() { count(0, bytes_); }

void EventLog::count(std::size_t added, std::size_t removed) {
  bytes_ += added;
  bytes_ -= removed;
  if (kept_) {
    *kept_ += added;
    *kept_ -= removed;
  }
}

std::string EventLog::text_of(const Event& e) const { return event_text(name_ + "-" + std::to_string(e.number), e.data); }

void EventLog::append(const std::string& data, bool last) {
  std::lock_guard lock(mutex_);
  if (complete_) return;
  events_.push_back({next_++, data});
  count(data.size(), 0);
  // The oldest go first: progress is worth less than the reply, which is the last.
  while (events_.size() > 1 && (events_.size() > max_events_ || bytes_ > max_bytes_)) {
    count(0, events_.front().data.size());
    events_.pop_front();
  }
  complete_ = last;
  if (!exchange_) return;
  delivered_ = events_.back().number;
  exchange_->send_events(text_of(events_.back()));
  if (complete_) std::exchange(exchange_, nullptr)->finish_events();
}

void EventLog::attach(std::shared_ptr<Exchange> exchange, std::optional<std::uint64_t> last_seen, bool prime) {
  std::lock_guard lock(mutex_);
  const std::uint64_t seen = last_seen.value_or(delivered_);
  if (exchange_) exchange_->finish_events();
  exchange_ = std::move(exchange);
  // The empty event carries the number before the next one: resuming from it misses nothing.
  if (prime) exchange_->send_events("id: " + name_ + "-" + std::to_string(seen) + "\nretry: 1000\ndata: \n\n");
  for (const Event& e : events_)
    if (e.number > seen) exchange_->send_events(text_of(e));
  delivered_ = next_ - 1;
  if (complete_) std::exchange(exchange_, nullptr)->finish_events();
}

void EventLog::detach(const Exchange* exchange) {
  std::lock_guard lock(mutex_);
  if (exchange_.get() == exchange) exchange_.reset();
}

void EventLog::release() {
  std::lock_guard lock(mutex_);
  if (exchange_) std::exchange(exchange_, nullptr)->finish_events();
}

void EventLog::end() {
  std::lock_guard lock(mutex_);
  complete_ = true;
  if (exchange_) std::exchange(exchange_, nullptr)->finish_events();
}

std::size_t EventLog::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

bool EventLog::attached() const {
  std::lock_guard lock(mutex_);
  return exchange_ != nullptr;
}

bool EventLog::complete() const {
  std::lock_guard lock(mutex_);
  return complete_;
}

}  // namespace amk::http
