#include "server/dashboard/dashboard.h"

#include <atomic>
#include <exception>
#include <functional>

#include "core/base/parse_json.h"
#include "core/base/resources.h"
#include "server/dashboard/api.h"
#include "server/dashboard/feed.h"
#include "server/dashboard/page_files.h"
#include "server/http/access.h"
#include "server/protocol/executor.h"

namespace amk::dashboard {
namespace {

int status_of(const Error& error) {
  switch (error.kind) {
    case ErrorKind::InvalidArgument:
    case ErrorKind::Unsupported:
      return 400;
    case ErrorKind::NotFound:
      return 404;
    case ErrorKind::Conflict:
    case ErrorKind::Rejected:
      return 409;
    case ErrorKind::Unavailable:
    case ErrorKind::Timeout:
    case ErrorKind::Cancelled:
      return 503;
    default:
      return 500;
  }
}

http::Reply json_reply(const Result<Json>& result) {
  return result ? http::Reply{200, "application/json", canonical_dump(*result)}
                : http::Reply{status_of(result.error()), "application/json", canonical_dump(to_json(result.error()))};
}

http::Reply method_not_allowed() {
  http::Reply reply = http::text_reply(405, "only GET is answered here");
  reply.headers.emplace_back("Allow", "GET");
  return reply;
}

// A mistake of ours in one answer (or memory that has run out) must not end the daemon and its jobs.
template <class T>
T guarded(const std::function<T()>& work, const std::function<T(const Error&)>& failed) {
  try {
    return work();
  } catch (const std::exception& e) {
    return failed({ErrorKind::Internal, std::string("the dashboard failed: ") + e.what()});
  }
}

constexpr std::string_view kApi = "/dashboard/api/";

}  // namespace

std::vector<std::filesystem::path> default_page_folders() {
  std::vector<std::filesystem::path> folders;
  if (const auto resources = find_resources()) folders.push_back(resources->root / "dashboard");
  folders.emplace_back(AMK_DASHBOARD_PAGE);
  return folders;
}

struct Dashboard::Impl {
  Impl(amk::Service& service, JobManager& jobs, DashboardOptions o)
      : options(std::move(o)),
        api(service, jobs, options.workspace),
        threads(options.max_threads),
        slow_thread(1),
        feed(
            [this] {
              return guarded<std::string>([this] { return canonical_dump(api.state()); }, [](const Error& e) { return canonical_dump(to_json(e)); });
            },
            options.look_every, options.max_streams) {}

  // Runs `work` on a thread of the pool; its reply is the answer.
  void answer(mcp::Executor& pool, const std::shared_ptr<http::Exchange>& exchange, std::function<http::Reply()> work) {
    if (waiting.fetch_add(1) >= options.max_waiting || !pool.submit([this, exchange, work = std::move(work)] {
          exchange->reply(guarded<http::Reply>(work, [](const Error& error) { return json_reply(tl::unexpected<Error>(error)); }));
          --waiting;
        })) {
      --waiting;
      exchange->reply(http::text_reply(503, "too many requests are waiting"));
    }
  }

  const DashboardOptions options;
  Api api;
  std::atomic<std::size_t> waiting{0};
  mcp::Executor threads, slow_thread;
  Feed feed;
};

Dashboard::Dashboard(amk::Service& service, JobManager& jobs, DashboardOptions options)
    : impl_(std::make_unique<Impl>(service, jobs, std::move(options))) {}
Dashboard::~Dashboard() = default;

void Dashboard::add_to(http::Service& http) {
  // The data first: of two paths that fit, the one added earlier is taken.
  http.add_page(std::string(kApi), false, [impl = impl_.get()](const http::Request& request, const std::shared_ptr<http::Exchange>& exchange) {
    if (request.method != "GET") return exchange->reply(method_not_allowed());
    const std::string name = request.path.substr(kApi.size());
    if (name == "events") return impl->feed.attach(exchange);
    // These may read every config of a campaign, or a file of many megabytes: they wait for each other, and nothing waits for them.
    const bool slow = name == "importance" || name == "trace";
    impl->answer(slow ? impl->slow_thread : impl->threads, exchange,
                 [impl, name, query = request.query] { return json_reply(impl->api.get(name, query)); });
  });
  const auto page = [impl = impl_.get()](const http::Request& request, const std::shared_ptr<http::Exchange>& exchange) {
    if (request.method != "GET") return exchange->reply(method_not_allowed());
    impl->answer(impl->threads, exchange, [impl, path = request.path] { return page_file(impl->options.page_folders, path); });
  };
  http.add_page("/dashboard", true, page);
  http.add_page("/dashboard/", true, page);
}

}  // namespace amk::dashboard
