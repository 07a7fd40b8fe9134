// The server on Boost.Asio and Boost.Beast. Chosen over the packaged cpp-httplib (0.11.4), which holds one thread for as long as a response
// lasts: 200 idle event streams would be 200 threads, or a pool that they exhaust. Beast's parser also refuses what smuggling needs: bare
// line feeds, both Content-Length and Transfer-Encoding, repeated lengths, spaces before colons.
//
// Here: listening, accepting, stopping. What happens on a connection is in beast_connection.h.
#include <exception>
#include <functional>
#include <thread>

#include "server/http/beast_connection.h"

namespace amk::http {
namespace {

class BeastServer final : public Server {
 public:
  BeastServer(std::shared_ptr<Shared> shared, tcp::acceptor acceptor)
      : shared_(std::move(shared)), acceptor_(std::move(acceptor)), port_(acceptor_.local_endpoint().port()), pause_(shared_->io) {
    accept();
    thread_ = std::thread([this] {
      // What leaves a handler (no memory) costs its connection, which nothing holds any more.
      for (bool ended = false; !ended;) try {
          shared_->io.run();
          ended = true;
        } catch (const std::exception&) {
        }
    });
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
    {
      const std::lock_guard lock(shared_->posting);
      shared_->stopped = true;
    }
    // What came between the end of the run and this.
    shared_->io.restart();
    shared_->io.poll();
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
      try {
        ErrorCode ignored;
        socket.set_option(tcp::no_delay(true), ignored);
        const auto connection = std::make_shared<Connection>(shared_, std::move(socket));
        if (shared_->count > shared_->options.max_connections)
          connection->refuse_overload();
        else
          connection->start();
      } catch (const std::exception&) {  // no memory for one more: it is hung up on
      }
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
