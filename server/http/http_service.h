// MCP over HTTP as a part of the daemon: `amk serve --http ADDRESS:PORT`.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "core/base/error.h"
#include "server/http/http_server.h"
#include "server/protocol/server.h"

namespace amk::http {

struct ServiceOptions {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;
  // File that holds the bearer token (0600), made if it is missing. Empty: no token is asked, which is allowed on loopback only.
  std::filesystem::path token_file = {};
  std::vector<std::string> more_hosts = {};  // names beside 127.0.0.1, localhost and [::1] in Host and Origin
  double requests_per_s = 500;               // over all clients; bursts of twice as many
  Options server = {};                       // limits; address and port are those above
};

// "127.0.0.1:8080", "[::1]:0" or ":8080" into address and port.
Result<std::pair<std::string, std::uint16_t>> parse_endpoint(const std::string& text);

// Called for requests outside /mcp, already admitted.
using Page = std::function<void(const Request&, const std::shared_ptr<Exchange>&)>;

class Service {
 public:
  virtual ~Service() = default;  // stops
  static Result<std::unique_ptr<Service>> start(std::shared_ptr<mcp::Server> server, ServiceOptions options);

  // http://ADDRESS:PORT/mcp
  virtual std::string url() const = 0;
  virtual std::uint16_t port() const = 0;
  virtual const std::string& token() const = 0;
  virtual int connections() const = 0;
  virtual int sessions() const = 0;
  // Serves GET on `path` (exactly), or below it when it ends with '/'. `public_page`: without the token (a page that brings its own).
  virtual void add_page(const std::string& path, bool public_page, Page page) = 0;
  virtual void stop() = 0;
};

}  // namespace amk::http
