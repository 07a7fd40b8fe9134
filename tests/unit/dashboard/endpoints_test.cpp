// The endpoints over real sockets, on a campaign that a real loop made.
#include <doctest/doctest.h>

#include <fstream>

#include "server/dashboard/dashboard.h"
#include "server/tools/app.h"
#include "tests/support/fake_server/fake_server.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/http/raw_client.h"

using namespace amk;
using amk::testing::RawClient;

namespace {

template <class T>
T must(Result<T> result) {
  if (!result) FAIL(result.error().message);
  return std::move(*result);
}

struct Answer {
  int status = 0;
  std::string text;
  Json json;
};

struct Fixture {
  Fixture() {
    app = must(App::open({folder.path / "workspace", {}}));
    SearchRequest loop;
    loop.model = "toy";
    loop.device = "cpu";
    loop.budget = 12;
    looped = must(app->service().loop(loop, {}));
    http::ServiceOptions options;
    options.token_file = folder.path / "token";
    service = must(http::Service::start(std::make_shared<mcp::Server>(amk::testing::fake_definition()), options));
    dashboard::DashboardOptions d;
    d.workspace = folder.path / "workspace";
    d.page_folders = {folder.path / "nothing", folder.path / "page"};
    d.look_every = std::chrono::milliseconds(20);
    d.max_streams = 2;
    page = std::make_unique<dashboard::Dashboard>(app->service(), app->jobs(), d);
    page->add_to(*service);
  }
  ~Fixture() { service.reset(); }

  std::string head(const std::string& method, const std::string& path, bool token) const {
    return method + " " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + (token ? "Authorization: Bearer " + service->token() + "\r\n" : "");
  }
  Answer ask(const std::string& path, bool token = true, const std::string& method = "GET") const {
    RawClient client(service->port());
    client.send(head(method, path, token) + "Connection: close\r\n\r\n");
    client.read_all();
    Answer a{client.status(), client.got, nullptr};
    const std::size_t body = client.got.find("\r\n\r\n");
    if (body != std::string::npos) a.json = Json::parse(client.got.substr(body + 4), nullptr, false);
    return a;
  }
  Answer api(const std::string& path) const { return ask("/dashboard/api/" + path); }

  test::TempFolder folder;
  std::shared_ptr<App> app;
  Json looped;
  std::unique_ptr<dashboard::Dashboard> page;
  std::unique_ptr<http::Service> service;
};

}  // namespace

TEST_CASE("data only with the token, by GET; the page without") {
  Fixture f;
  for (const char* name : {"state", "events", "campaign?id=c1", "series?campaign=c1", "importance?campaign=c1", "results", "diff?a=e1&b=e2",
                           "experiment?id=e1", "traces", "trace?schedule_id=s1", "nothing"})
    CHECK(f.ask(std::string("/dashboard/api/") + name, false).status == 401);
  CHECK(f.ask("/dashboard/api/state", true, "POST").status == 405);
  CHECK(f.ask("/dashboard/api/nothing").status == 404);
  CHECK(f.ask("/dashboard/../api/state", false).status == 404);
  CHECK(f.ask("/dashboard//api/state", false).status == 404);
  CHECK(f.ask("/dashboard/index.html", false).status == 404);
  CHECK(f.ask("/dashboard", false, "POST").status == 405);
  RawClient rebound(f.service->port());
  rebound.send("GET /dashboard HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
  rebound.read_all();
  CHECK(rebound.status() == 403);
  RawClient other_page(f.service->port());
  other_page.send(f.head("GET", "/dashboard/api/state", true) + "Origin: https://evil.example\r\nConnection: close\r\n\r\n");
  other_page.read_all();
  CHECK(other_page.status() == 403);
}

TEST_CASE("a page that is not built says how to build it; a built one is served under a strict policy") {
  Fixture f;
  const Answer missing = f.ask("/dashboard", false);
  CHECK(missing.status == 503);
  CHECK(missing.text.find("server/dashboard/web/build") != std::string::npos);
  CHECK(f.ask("/dashboard/app.js", false).status == 404);
  std::filesystem::create_directory(f.folder.path / "page");
  std::ofstream(f.folder.path / "page" / "index.html") << "<p>page</p>";
  std::ofstream(f.folder.path / "page" / "app.js") << "1;";
  const Answer built = f.ask("/dashboard", false);
  CHECK(built.status == 200);
  CHECK(built.text.ends_with("<p>page</p>"));
  CHECK(built.text.find("Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self';") != std::string::npos);
  CHECK(built.text.find("frame-ancestors 'none'") != std::string::npos);
  CHECK(built.text.find("unsafe") == std::string::npos);
  CHECK(f.ask("/dashboard/", false).text.ends_with("<p>page</p>"));
  CHECK(f.ask("/dashboard/app.js", false).text.find("Content-Type: text/javascript") != std::string::npos);
  CHECK(f.ask("/dashboard/app.css", false).status == 404);
}

TEST_CASE("series, importance, results, diff and verdicts say what the service says") {
  Fixture f;
  const Json status = must(f.app->service().status("c1"));
  const Json series = f.api("series?campaign=c1").json;
  CHECK(series["total"] == 12);
  CHECK(series["kind"] == "predicted");
  CHECK(series["best"]["latency_us"].back().get<double>() == doctest::Approx(status["best"]["latency_us"].get<double>()).epsilon(1e-5));
  CHECK(series["best"]["experiment"].back() == status["best"]["experiment"]);
  CHECK(series["best"]["experiment"].size() == status["counts"]["kept"]);
  CHECK(series["best"]["mad_us"][0].is_null());  // predictions have no noise
  CHECK(series["floor_us"] == status["best"]["bound_us"]);
  CHECK(series["timeline"]["per"] == 1);
  CHECK(series["timeline"]["counts"].size() == 12);
  CHECK(series["outcomes"][0] == "kept");
  CHECK(series["points"]["n"].size() <= 12);

  // More experiments: the kept history continues where it was.
  SearchRequest more;
  more.model = "toy";
  more.device = "cpu";
  more.budget = 5;
  more.seed = 2;
  must(f.app->service().loop(more, {}));
  CHECK(f.api("series?campaign=c1").json["total"] == 17);
  CHECK(f.api("series?campaign=c1&points=10").json["points"]["n"].size() <= 10);

  // The page and the agent read the same importance.
  const Json told = must(f.app->service().propose("toy", "auto", "cpu"))["knobs_that_matter"];
  const Json shown = f.api("importance?campaign=c1").json["knobs"];
  REQUIRE(shown.size() >= told.size());
  for (std::size_t i = 0; i < told.size(); ++i) {
    CHECK(shown[i]["explains"].get<double>() == doctest::Approx(told[i]["explains"].get<double>()));
    CHECK(shown[i]["observations"] == told[i]["observations"]);
  }

  // The page's phases are the report's.
  const Json spent = must(f.app->service().campaigns().report(CampaignId{1})).json["history"]["time_by_phase_s"];
  const Json phases = f.api("importance?campaign=c1").json["phases_s"];
  CHECK(spent.size() >= 3);
  CHECK(phases.size() == spent.size());
  for (const auto& [name, s] : spent.items()) CHECK(phases.value(name, -1.0) == doctest::Approx(s.get<double>()).epsilon(1e-4));

  const Json page = f.api("results?campaign=c1&sort=latency_us&limit=3&outcome=kept&outcome=revert").json;
  CHECK(page["rows"].size() == 3);
  CHECK(page["rows"] ==
        must(f.app->service().results({{"campaign", "c1"}, {"sort", "latency_us"}, {"limit", 3}, {"outcome", {"kept", "revert"}}}))["rows"]);
  CHECK(f.api("diff?a=e1&b=e2").json == must(f.app->service().results({{"diff", {"e1", "e2"}}})));

  const Json experiment = f.api("experiment?id=e1").json;
  CHECK(experiment["experiment"] == "e1");
  CHECK(experiment["verdict"]["status"] == "ok");
  CHECK(experiment["verdict"]["verdict_id"] == experiment["verdict_id"]);
  CHECK(experiment["traced"] == false);
  const Json campaign = f.api("campaign?id=c1").json;
  CHECK(campaign["best_verdict"]["schedule_id"] == campaign["best"]["schedule_id"]);
  CHECK(campaign["best_verdict"]["regions"].is_object());
}

TEST_CASE("wrong questions get answers that name what is wrong") {
  Fixture f;
  for (const auto& [path, status] : std::vector<std::pair<std::string, int>>{{"campaign", 400},
                                                                             {"campaign?id=c99", 404},
                                                                             {"series?campaign=x", 400},
                                                                             {"series?campaign=c99", 404},
                                                                             {"series?campaign=c1&points=1", 400},
                                                                             {"series?campaign=c1&surprise=1", 400},
                                                                             {"results?sort=sideways", 400},
                                                                             {"results?limit=1000", 400},
                                                                             {"results?cursor=nonsense", 400},
                                                                             {"results?outcome=", 400},
                                                                             {"diff?a=e1", 400},
                                                                             {"diff?a=e1&b=e999", 404},
                                                                             {"experiment?id=e999", 404},
                                                                             {"experiment?id=%00", 400},
                                                                             {"trace?schedule_id=..%2Fx", 400},
                                                                             {"trace?schedule_id=s1", 404},
                                                                             {"trace?schedule_id=s1&from_us=1", 400},
                                                                             {"trace?schedule_id=s1&from_us=2&to_us=1", 400}}) {
    const Answer a = f.api(path);
    CAPTURE(path);
    CHECK(a.status == status);
    CHECK(a.json["error"]["message"].is_string());
  }
}

TEST_CASE("the event stream: state at once, then what changes; bounded") {
  Fixture f;
  RawClient a(f.service->port());
  a.send(f.head("GET", "/dashboard/api/events", true) + "\r\n");
  a.read_until("\n\n\r\n");
  CHECK(a.status() == 200);
  CHECK(a.got.find("Content-Type: text/event-stream") != std::string::npos);
  a.read_until("\"campaign\":\"c1\"");
  CHECK(a.got.find("\"ended\":12") != std::string::npos);
  SearchRequest more;
  more.model = "toy";
  more.device = "cpu";
  more.budget = 1;
  more.seed = 9;
  must(f.app->service().loop(more, {}));
  a.read_until("\"ended\":13");
  CHECK(a.got.find("\"ended\":13") != std::string::npos);
  RawClient b(f.service->port());
  b.send(f.head("GET", "/dashboard/api/events", true) + "\r\n");
  b.read_until("\"ended\":13");
  CHECK(b.status() == 200);
  CHECK(f.ask("/dashboard/api/events").status == 503);  // two is this fixture's limit
}
