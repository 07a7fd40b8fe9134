#include "server/http/http_service.h"

#include <algorithm>
#include <charconv>
#include <mutex>

#include "server/http/access.h"
#include "server/http/mcp_endpoint.h"

namespace amk::http {
namespace {

// A token bucket over all clients: they are one user's processes, and none should be able to starve the daemon.
class RateLimit {
 public:
  explicit RateLimit(double per_s) : per_s_(per_s), tokens_(2 * per_s) {}
  bool take() {
    if (per_s_ <= 0) return true;
    std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    tokens_ = std::min(2 * per_s_, tokens_ + per_s_ * std::chrono::duration<double>(now - last_).count());
    last_ = now;
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

 private:
  const double per_s_;
  std::mutex mutex_;
  double tokens_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

struct Route {
  std::string path;
  bool public_page;
  Page page;
};

class Router final : public Handler {
 public:
  Router(AccessPolicy policy, double requests_per_s, std::shared_ptr<McpEndpoint> endpoint)
      : policy_(std::move(policy)), rate_(requests_per_s), endpoint_(std::move(endpoint)) {}

  std::optional<Reply> admit(const Request& head) override {
    if (!rate_.take()) {
      Reply busy = text_reply(429, "too many requests");
      busy.headers.emplace_back("Retry-After", "1");
      return busy;
    }
    const auto route = find(head.path);
    return refuse_access(policy_, head, !(route && route->public_page));
  }

  void handle(Request request, std::shared_ptr<Exchange> exchange) override {
    if (request.path == "/mcp") return endpoint_->handle(request, exchange);
    const auto route = find(request.path);
    if (!route) return exchange->reply(text_reply(404, "there is nothing here; MCP is spoken at /mcp"));
    route->page(request, exchange);
  }

  void add(Route route) {
    std::lock_guard lock(mutex_);
    routes_.push_back(std::make_shared<const Route>(std::move(route)));
  }

 private:
  std::shared_ptr<const Route> find(const std::string& path) const {
    std::lock_guard lock(mutex_);
    for (const auto& r : routes_)
      if (path == r->path || (r->path.size() > 1 && r->path.back() == '/' && path.starts_with(r->path))) return r;
    return nullptr;
  }

  const AccessPolicy policy_;
  RateLimit rate_;
  const std::shared_ptr<McpEndpoint> endpoint_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const Route>> routes_;
};

class ServiceImpl final : public Service {
 public:
  ServiceImpl(std::string token, std::string address, std::shared_ptr<McpEndpoint> endpoint, std::shared_ptr<Router> router,
              std::unique_ptr<Server> server)
      : token_(std::move(token)),
        address_(std::move(address)),
        endpoint_(std::move(endpoint)),
        router_(std::move(router)),
        server_(std::move(server)) {}
  ~ServiceImpl() override { ServiceImpl::stop(); }

  std::string url() const override {
    const bool v6 = address_.find(':') != std::string::npos;
    return "http://" + (v6 ? "[" + address_ + "]" : address_) + ":" + std::to_string(port()) + "/mcp";
  }
  std::uint16_t port() const override { return server_->port(); }
  const std::string& token() const override { return token_; }
  int connections() const override { return server_->connections(); }
  int sessions() const override { return endpoint_->sessions(); }
  void add_page(const std::string& path, bool public_page, Page page) override { router_->add({path, public_page, std::move(page)}); }
  void stop() override {
    endpoint_->close();
    server_->stop();
  }

 private:
  const std::string token_, address_;
  const std::shared_ptr<McpEndpoint> endpoint_;
  const std::shared_ptr<Router> router_;
  const std::unique_ptr<Server> server_;
};

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace

Result<std::pair<std::string, std::uint16_t>> parse_endpoint(const std::string& text) {
  const auto wrong = [&] { return bad_field("http", text, "ADDRESS:PORT, e.g. 127.0.0.1:0 or [::1]:8080"); };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return wrong();
  std::string address = text.substr(0, colon);
  if (address.starts_with("[") && address.ends_with("]")) address = address.substr(1, address.size() - 2);
  if (address.empty() || address == "localhost") address = "127.0.0.1";
  std::uint16_t port = 0;
  const char* last = text.data() + text.size();
  const auto [end, problem] = std::from_chars(text.data() + colon + 1, last, port);
  if (problem != std::errc() || end != last) return wrong();
  return std::pair{address, port};
}

Result<std::unique_ptr<Service>> Service::start(std::shared_ptr<mcp::Server> server, ServiceOptions options) {
  AccessPolicy policy;
  for (std::string& h : options.more_hosts) policy.hosts.push_back(std::move(h));
  if (!options.token_file.empty()) {
    AMK_TRY(token, load_or_make_token(options.token_file));
    policy.token = std::move(token);
  } else if (!is_loopback(options.address)) {
    return bad_field("http", options.address, "a loopback address, unless a token is required: others can reach this one");
  }
  options.server.address = options.address;
  options.server.port = options.port;
  const std::string token = policy.token;
  auto endpoint = std::make_shared<McpEndpoint>(std::move(server));
  auto router = std::make_shared<Router>(std::move(policy), options.requests_per_s, endpoint);
  AMK_TRY(http, Server::start(options.server, router));
  return std::make_unique<ServiceImpl>(token, options.address, std::move(endpoint), std::move(router), std::move(http));
}

}  // namespace amk::http
