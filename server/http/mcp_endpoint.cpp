#include "server/http/mcp_endpoint.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <utility>
#include <vector>

#include "core/base/parse_json.h"
#include "server/http/access.h"
#include "server/http/event_log.h"
#include "server/protocol/json_rpc.h"
#include "server/protocol/random_id.h"
#include "server/protocol/revisions.h"

namespace amk::http {
namespace {

using mcp::RpcCode;

// Of event streams, for clients that come back for the rest.
constexpr std::size_t kKeptOfSession = 8u << 20, kKeptOfAll = 64u << 20;

Reply json_reply(int status, const Json& body) { return {status, "application/json", canonical_dump(body)}; }
Reply rpc_error(int status, const Json& id, RpcCode code, const std::string& message, Json data = nullptr) {
  return json_reply(status, mcp::make_error(id, {code, message, std::move(data)}));
}

// What a reply's HTTP status has to be. Up to 2025-11-25 an answered request is 200, whatever the answer.
int status_of(const Json& reply, bool modern) {
  if (!modern || !reply.is_object() || !reply.contains("error")) return 200;
  switch (static_cast<RpcCode>(reply["error"].value("code", 0))) {
    case RpcCode::MethodNotFound:
      return 404;
    case RpcCode::ParseError:
    case RpcCode::InvalidRequest:
    case RpcCode::HeaderMismatch:
    case RpcCode::MissingClientCapability:
    case RpcCode::UnsupportedProtocolVersion:
      return 400;
    default:
      return 200;
  }
}

bool is_final(const Json& message) { return message.is_array() || !message.contains("method"); }

bool accepts(const Request& request, std::string_view type) {
  const std::string* accept = request.header("accept");
  if (!accept) return true;
  const std::string_view range = type.substr(0, type.find('/'));
  return accept->find(type) != std::string::npos || accept->find("*/*") != std::string::npos ||
         accept->find(std::string(range) + "/*") != std::string::npos;
}

bool has_modern_meta(const Json& message) {
  if (!message.is_object()) return false;
  const auto params = message.find("params");
  if (params == message.end() || !params->is_object()) return false;
  const auto meta = params->find("_meta");
  return meta != params->end() && meta->is_object() && meta->contains(mcp::kMetaProtocolVersion);
}

bool has_request(const Json& message) {
  auto is_request = [](const Json& m) { return m.is_object() && m.contains("method") && m.contains("id"); };
  if (!message.is_array()) return is_request(message);
  for (const Json& m : message)
    if (is_request(m)) return true;
  return false;
}

}  // namespace

// Event streams that are open now.
class McpEndpoint::StreamCount {
 public:
  explicit StreamCount(int limit) : limit_(limit) {}
  bool enter() {
    if (++open_ <= limit_) return true;
    --open_;
    return false;
  }
  void leave() { --open_; }
  int open() const { return open_; }

 private:
  const int limit_;
  std::atomic<int> open_{0};
};

namespace {

// Where the messages of one POST go. Nothing is sent before it is known what is right: a reply that is there soon becomes a plain JSON
// body with its own status; anything else opens an event stream.
class PostOutlet final : public mcp::Outlet, public std::enable_shared_from_this<PostOutlet> {
 public:
  PostOutlet(std::shared_ptr<Exchange> exchange, bool modern, bool may_stream, std::shared_ptr<McpEndpoint::StreamCount> streams)
      : exchange_(std::move(exchange)), modern_(modern), may_stream_(may_stream), streams_(std::move(streams)) {}
  ~PostOutlet() override { leave(); }

  // Legacy: the stream can be resumed by this log.
  void keep(std::shared_ptr<EventLog> log, bool prime) {
    log_ = std::move(log);
    prime_ = prime;
  }
  // Headers for the answer (the session's id).
  void add_header(std::string name, std::string value) { headers_.emplace_back(std::move(name), std::move(value)); }

  void send(const Json& message) override {
    std::lock_guard lock(mutex_);
    if (done_) return;
    const bool last = is_final(message);
    if (!streaming_ && last) {
      done_ = true;
      Reply reply = json_reply(status_of(message, modern_), message);
      reply.headers = headers_;
      return exchange_->reply(std::move(reply));
    }
    if (!streaming_ && !may_stream_) return;  // the client takes JSON only: notifications have no place
    if (!streaming_ && !open_stream()) return;
    const std::string text = canonical_dump(message);
    if (log_) {
      log_->append(text, last);
    } else {
      exchange_->send_events(event_text("", text));
      if (last) exchange_->finish_events();
    }
    if (last) finish();
  }

  // The request takes longer: the client sees headers.
  void stream_now() {
    std::lock_guard lock(mutex_);
    if (!done_ && !streaming_ && may_stream_) open_stream();
  }
  // The request was cancelled, or all of the batch's were: nothing will come.
  void dropped() override {
    std::lock_guard lock(mutex_);
    if (done_) return;
    done_ = true;
    if (!streaming_)
      exchange_->reply({202, "", ""});
    else if (log_)
      log_->end();
    else
      exchange_->finish_events();
    finish();
  }
  void release() override {
    std::lock_guard lock(mutex_);
    if (done_ || !log_) return;
    if (!streaming_ && !open_stream()) return;
    log_->release();
  }
  bool done() const {
    std::lock_guard lock(mutex_);
    return done_;
  }
  void closed() {
    if (log_) log_->detach(exchange_.get());
    std::lock_guard lock(mutex_);
    leave();
  }

 private:
  bool open_stream() {
    if (!streams_->enter()) {
      done_ = true;
      exchange_->reply(text_reply(503, "too many event streams are open"));
      return false;
    }
    counted_ = true;
    streaming_ = true;
    exchange_->start_events(headers_);
    if (log_) log_->attach(exchange_, 0, prime_);
    return true;
  }
  void finish() {
    done_ = true;
    leave();
  }
  void leave() {
    if (std::exchange(counted_, false)) streams_->leave();
  }

  const std::shared_ptr<Exchange> exchange_;
  const bool modern_, may_stream_;
  const std::shared_ptr<McpEndpoint::StreamCount> streams_;
  std::shared_ptr<EventLog> log_;
  bool prime_ = false;
  std::vector<std::pair<std::string, std::string>> headers_;
  mutable std::mutex mutex_;
  bool streaming_ = false, done_ = false, counted_ = false;
};

// Messages that belong to no request: they go to the GET stream. Apart from HttpSession, which owns the session that owns this: one object would
// hold itself for ever.
class GetOutlet final : public mcp::Outlet {
 public:
  explicit GetOutlet(std::shared_ptr<EventLog> stream) : stream_(std::move(stream)) {}
  void send(const Json& message) override { stream_->append(canonical_dump(message)); }

 private:
  const std::shared_ptr<EventLog> stream_;
};

}  // namespace

// A session of the handshake era.
struct McpEndpoint::HttpSession {
  explicit HttpSession(std::shared_ptr<std::atomic<std::size_t>> kept_bytes) : kept(std::move(kept_bytes)) {}
  const std::string id = random_id(16);
  const std::shared_ptr<std::atomic<std::size_t>> kept;
  const std::shared_ptr<EventLog> own = std::make_shared<EventLog>("g", 128, 1u << 20);
  std::shared_ptr<mcp::Session> session;

  std::mutex mutex;
  std::chrono::steady_clock::time_point used = std::chrono::steady_clock::now();
  std::map<std::string, std::shared_ptr<EventLog>> logs;
  std::deque<std::string> order;  // of logs, oldest first
  std::uint64_t next_log = 1;

  std::shared_ptr<EventLog> new_log() {
    forget_answers(kKeptOfSession);
    std::lock_guard lock(mutex);
    constexpr std::size_t kKept = 64;
    while (order.size() >= kKept) {
      logs.erase(order.front());
      order.pop_front();
    }
    const std::string name = "p" + std::to_string(next_log++);
    order.push_back(name);
    return logs[name] = std::make_shared<EventLog>(name, 512, 4u << 20, kept);
  }
  // Of what was answered, keeps the newest bytes.
  void forget_answers(std::size_t bytes) {
    std::lock_guard lock(mutex);
    std::size_t sum = 0;
    for (std::size_t i = order.size(); i-- > 0;) {
      const auto& log = logs[order[i]];
      sum += log->bytes();
      if (sum <= bytes || !log->complete()) continue;
      logs.erase(order[i]);
      order.erase(order.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  std::shared_ptr<EventLog> log(const std::string& name) {
    if (name == "g") return own;
    std::lock_guard lock(mutex);
    const auto it = logs.find(name);
    return it == logs.end() ? nullptr : it->second;
  }
  void touch() {
    std::lock_guard lock(mutex);
    used = std::chrono::steady_clock::now();
  }
  std::chrono::steady_clock::time_point last_used() {
    std::lock_guard lock(mutex);
    return used;
  }
};

McpEndpoint::McpEndpoint(std::shared_ptr<mcp::Server> server, McpOptions options)
    : server_(std::move(server)), options_(options), streams_(std::make_shared<StreamCount>(options.max_streams)) {}

McpEndpoint::~McpEndpoint() { close(); }

int McpEndpoint::sessions() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(sessions_.size());
}

int McpEndpoint::streams() const { return streams_->open(); }

void McpEndpoint::close() {
  std::map<std::string, std::shared_ptr<HttpSession>> ended;
  {
    std::lock_guard lock(mutex_);
    ended.swap(sessions_);
  }
  for (const auto& [id, s] : ended) {
    s->session->close();
    s->own->release();
  }
}

std::shared_ptr<McpEndpoint::HttpSession> McpEndpoint::find(const std::string& id) {
  std::lock_guard lock(mutex_);
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return nullptr;
  it->second->touch();
  return it->second;
}

void McpEndpoint::forget_idle() {
  std::vector<std::shared_ptr<HttpSession>> ended;
  {
    std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    auto oldest = sessions_.end();
    for (auto it = sessions_.begin(); it != sessions_.end();) {
      const bool in_use = it->second->own->attached() || it->second->session->requests_in_flight() > 0;
      if (!in_use && now - it->second->used > options_.session_idle) {
        ended.push_back(it->second);
        it = sessions_.erase(it);
        continue;
      }
      if (!in_use && (oldest == sessions_.end() || it->second->used < oldest->second->used)) oldest = it;
      ++it;
    }
    if (static_cast<int>(sessions_.size()) >= options_.max_sessions && oldest != sessions_.end()) {
      ended.push_back(oldest->second);
      sessions_.erase(oldest);
    }
  }
  for (const auto& s : ended) s->session->close();
}

// What clients that broke off may still ask for is bounded for all together: of the sessions that were used least lately it goes first.
void McpEndpoint::forget_answers() {
  if (*kept_ <= kKeptOfAll) return;
  std::vector<std::pair<std::chrono::steady_clock::time_point, std::shared_ptr<HttpSession>>> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, s] : sessions_) all.emplace_back(s->last_used(), s);
  }
  std::sort(all.begin(), all.end());
  for (const auto& [used, s] : all) {
    s->forget_answers(0);
    if (*kept_ <= kKeptOfAll / 2) return;
  }
}

std::shared_ptr<McpEndpoint::HttpSession> McpEndpoint::open_session() {
  forget_idle();
  auto session = std::make_shared<HttpSession>(kept_);
  session->session = server_->open(std::make_shared<GetOutlet>(session->own));
  return session;
}

void McpEndpoint::handle(const Request& request, const std::shared_ptr<Exchange>& exchange) {
  if (request.method == "POST") return post(request, exchange);
  if (request.method == "GET") return get(request, exchange);
  if (request.method == "DELETE") return remove(request, exchange);
  Reply reply = text_reply(405, "POST, GET or DELETE");
  reply.headers.emplace_back("Allow", "POST, GET, DELETE");
  exchange->reply(std::move(reply));
}

void McpEndpoint::post(const Request& request, const std::shared_ptr<Exchange>& exchange) {
  const std::string* type = request.header("content-type");
  if (!type || !type->starts_with("application/json")) return exchange->reply(text_reply(415, "Content-Type must be application/json"));
  if (!accepts(request, "application/json") && !accepts(request, "text/event-stream"))
    return exchange->reply(text_reply(406, "Accept must list application/json and text/event-stream"));
  auto message = parse_json(request.body, "message", {.max_bytes = server_->options().max_message_bytes});
  if (!message) return exchange->reply(rpc_error(400, nullptr, RpcCode::ParseError, message.error().message));

  const std::string* version = request.header("mcp-protocol-version");
  const bool modern_header = version && !mcp::is_legacy_version(*version);
  if (modern_header || has_modern_meta(*message)) return post_modern(request, *std::move(message), exchange);
  post_legacy(request, *std::move(message), exchange);
}

void McpEndpoint::post_modern(const Request& request, Json message, const std::shared_ptr<Exchange>& exchange) {
  const mcp::Message m = mcp::classify(message);
  if (m.kind == mcp::MessageKind::Invalid) return exchange->reply(rpc_error(400, m.id, RpcCode::InvalidRequest, m.problem));
  if (m.kind == mcp::MessageKind::Response)
    return exchange->reply(rpc_error(400, nullptr, RpcCode::InvalidRequest, "clients send no responses in this revision"));
  if (m.kind == mcp::MessageKind::Notification) return exchange->reply({202, "", ""});  // cancellation is the stream's end, and there is no other

  // A body without its version is malformed, not mismatched: the session says so.
  if (has_modern_meta(message)) {
    const Json* schema = nullptr;
    if (m.method == "tools/call")
      for (const mcp::ToolSpec& t : server_->definition().tools)
        if (m.params.value("name", Json()) == t.name) schema = &t.input_schema;
    if (const std::string why = header_mismatch(request, message, schema); !why.empty())
      return exchange->reply(rpc_error(400, m.id, RpcCode::HeaderMismatch, why));
  } else {
    return exchange->reply(rpc_error(400, m.id, RpcCode::InvalidParams,
                                     "params._meta must carry " + std::string(mcp::kMetaProtocolVersion) + " and " + mcp::kMetaClientCapabilities));
  }
  // A request without its client's capabilities is malformed: 400, where other invalid params are 200.
  if (!m.params["_meta"].value(mcp::kMetaClientCapabilities, Json()).is_object())
    return exchange->reply(rpc_error(400, m.id, RpcCode::InvalidParams, "params._meta must carry " + std::string(mcp::kMetaClientCapabilities)));

  const auto outlet = std::make_shared<PostOutlet>(exchange, true, accepts(request, "text/event-stream"), streams_);
  const std::shared_ptr<mcp::Session> session = server_->open(outlet);
  // The end of the stream cancels. The exchange holds the session until then.
  exchange->on_closed([session, outlet] {
    session->close();
    outlet->closed();
  });
  session->receive(std::move(message), outlet);
  if (outlet->done()) return;
  if (m.method == "subscriptions/listen") return;  // its acknowledgement has opened the stream
  exchange->after(options_.stream_after, [weak = std::weak_ptr(outlet)] {
    if (const auto alive = weak.lock()) alive->stream_now();
  });
}

void McpEndpoint::post_legacy(const Request& request, Json message, const std::shared_ptr<Exchange>& exchange) {
  const std::string* id = request.header("mcp-session-id");
  const bool initialize = message.is_object() && message.value("method", Json()) == "initialize";
  std::shared_ptr<HttpSession> session;
  if (initialize) {
    session = open_session();
  } else {
    if (!id)
      return exchange->reply(rpc_error(400, message.is_object() ? message.value("id", Json()) : Json(), RpcCode::InvalidRequest,
                                       "Mcp-Session-Id is missing; initialize first"));
    session = find(*id);
    if (!session)
      return exchange->reply(
          rpc_error(404, message.is_object() ? message.value("id", Json()) : Json(), RpcCode::InvalidRequest, "no such session; initialize again"));
  }
  if (!has_request(message)) {
    // Notifications and responses; what is neither is a bad request.
    const bool bad = message.is_object() && mcp::classify(message).kind == mcp::MessageKind::Invalid;
    if (bad) return exchange->reply(rpc_error(400, nullptr, RpcCode::InvalidRequest, mcp::classify(message).problem));
    session->session->receive(std::move(message), nullptr);
    return exchange->reply({202, "", ""});
  }

  const auto outlet = std::make_shared<PostOutlet>(exchange, false, accepts(request, "text/event-stream"), streams_);
  const std::string revision = session->session->protocol_version();
  // Older clients take an event without data for a broken message.
  if (!initialize) {
    forget_answers();
    outlet->keep(session->new_log(), revision >= "2025-11-25");
  }
  if (initialize) outlet->add_header("Mcp-Session-Id", session->id);
  exchange->on_closed([outlet] { outlet->closed(); });  // no cancellation: the client may come back for the rest
  session->session->receive(std::move(message), outlet);
  if (initialize && session->session->initialized()) {
    std::lock_guard lock(mutex_);
    sessions_[session->id] = session;
  }
  if (outlet->done()) return;
  exchange->after(options_.stream_after, [weak = std::weak_ptr(outlet)] {
    if (const auto alive = weak.lock()) alive->stream_now();
  });
}

void McpEndpoint::get(const Request& request, const std::shared_ptr<Exchange>& exchange) {
  const std::string* id = request.header("mcp-session-id");
  if (!id) {
    Reply reply = text_reply(405, "streams without a session are opened by POST");
    reply.headers.emplace_back("Allow", "POST");
    return exchange->reply(std::move(reply));
  }
  const std::shared_ptr<HttpSession> session = find(*id);
  if (!session) return exchange->reply(text_reply(404, "no such session"));
  if (!request.header("accept") || !accepts(request, "text/event-stream"))
    return exchange->reply(text_reply(406, "Accept must list text/event-stream"));

  std::shared_ptr<EventLog> log = session->own;
  std::optional<std::uint64_t> seen;
  if (const std::string* last = request.header("last-event-id")) {
    std::string name;
    std::uint64_t number = 0;
    const bool ours = parse_event_id(*last, name, number);
    seen = number;
    if (!ours) return exchange->reply(text_reply(400, "Last-Event-ID is not one of ours"));
    log = session->log(name);
    if (!log) return exchange->reply(text_reply(404, "the stream of this Last-Event-ID is not kept any more"));
  } else if (log->attached()) {
    return exchange->reply(text_reply(409, "the session's stream is open already"));
  }
  if (!streams_->enter()) return exchange->reply(text_reply(503, "too many event streams are open"));
  // Leaves when the client goes, or with the last owner of this token when the stream is complete.
  const std::shared_ptr<StreamCount> open(streams_.get(), [streams = streams_](StreamCount*) { streams->leave(); });
  exchange->on_closed([log, open, raw = exchange.get()] { log->detach(raw); });
  exchange->start_events({});
  log->attach(exchange, seen, session->session->protocol_version() >= "2025-11-25");
}

void McpEndpoint::remove(const Request& request, const std::shared_ptr<Exchange>& exchange) {
  const std::string* id = request.header("mcp-session-id");
  if (!id) {
    Reply reply = text_reply(405, "there is no session to end");
    reply.headers.emplace_back("Allow", "POST");
    return exchange->reply(std::move(reply));
  }
  std::shared_ptr<HttpSession> session;
  {
    std::lock_guard lock(mutex_);
    if (const auto it = sessions_.find(*id); it != sessions_.end()) {
      session = it->second;
      sessions_.erase(it);
    }
  }
  if (!session) return exchange->reply(text_reply(404, "no such session"));
  session->session->close();
  session->own->release();
  exchange->reply({204, "", ""});
}

}  // namespace amk::http
