// Live state to many pages through one thread.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "server/dashboard/feed.h"

using namespace amk;
using namespace std::chrono_literals;

namespace {

struct FakeExchange final : http::Exchange {
  void reply(http::Reply r) override {
    const std::lock_guard lock(mutex);
    status = r.status;
  }
  void start_events(std::vector<std::pair<std::string, std::string>>) override {
    const std::lock_guard lock(mutex);
    status = 200;
  }
  void send_events(std::string text) override {
    const std::lock_guard lock(mutex);
    got += text;
  }
  void finish_events() override {
    const std::lock_guard lock(mutex);
    finished = true;
  }
  void on_closed(std::function<void()> call) override { closed = std::move(call); }
  void after(std::chrono::milliseconds, std::function<void()>) override {}

  std::string text() {
    const std::lock_guard lock(mutex);
    return got;
  }
  bool wait_for(const std::string& what) {
    for (int i = 0; i < 4000; ++i) {
      if (text().find(what) != std::string::npos) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
  std::mutex mutex;
  int status = 0;
  std::string got;
  bool finished = false;
  std::function<void()> closed;
};

int occurrences(const std::string& text, const std::string& what) {
  int n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("a page gets the state at once, then changes only, each once") {
  std::atomic<int> value{1}, looks{0};
  dashboard::Feed feed(
      [&] {
        ++looks;
        return "{\"v\":" + std::to_string(value) + "}";
      },
      5ms, 10);
  std::this_thread::sleep_for(30ms);
  CHECK(looks == 0);  // nobody watches: nothing is read
  const auto a = std::make_shared<FakeExchange>();
  feed.attach(a);
  REQUIRE(a->wait_for("event: state\nid: 1\ndata: {\"v\":1}\n\n"));
  const int before = looks;
  while (looks < before + 5) std::this_thread::sleep_for(1ms);
  CHECK(occurrences(a->text(), "event: state") == 1);
  value = 2;
  REQUIRE(a->wait_for("id: 2\ndata: {\"v\":2}\n\n"));
  const auto b = std::make_shared<FakeExchange>();
  feed.attach(b);
  REQUIRE(b->wait_for("id: 2\ndata: {\"v\":2}\n\n"));
  CHECK(occurrences(b->text(), "event: state") == 1);
  CHECK(occurrences(a->text(), "event: state") == 2);
  a->closed();
  CHECK(feed.streams() == 1);
  b->closed();
  CHECK(feed.streams() == 0);
}

TEST_CASE("streams are bounded, and finished at the end") {
  const auto a = std::make_shared<FakeExchange>(), b = std::make_shared<FakeExchange>(), c = std::make_shared<FakeExchange>();
  {
    dashboard::Feed feed([] { return std::string("{}"); }, 5ms, 2);
    feed.attach(a);
    feed.attach(b);
    feed.attach(c);
    CHECK(c->status == 503);
    CHECK(feed.streams() == 2);
  }
  CHECK(a->finished);
  CHECK(b->finished);
  CHECK_FALSE(c->finished);
  a->closed();  // after the feed has gone: harmless
}
