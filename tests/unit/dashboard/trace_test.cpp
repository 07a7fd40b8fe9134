// The token timeline: traces as Chrome's format allows them, and windows of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

#include "core/base/random.h"
#include "server/dashboard/trace.h"
#include "tests/support/temp_folder.h"

using namespace amk;
using namespace amk::dashboard;

namespace {

Json event(int sm, double ts, double dur, const std::string& kind, const std::string& name = "task") {
  return {{"ph", "X"}, {"tid", sm}, {"pid", 0}, {"ts", ts}, {"dur", dur}, {"cat", kind}, {"name", name}, {"args", {{"tid", 77}, {"cat", "x"}}}};
}
Trace parsed(const Json& document) {
  auto trace = Trace::parse(document.dump(), "test");
  if (!trace) FAIL(trace.error().message);
  return std::move(*trace);
}
bool refused(const std::string& text) { return !Trace::parse(text, "test"); }

}  // namespace

TEST_CASE("events are read whole, others passed over") {
  const Trace t = parsed({{"displayTimeUnit", "ns"},
                          {"otherData", {{"traceEvents", {event(5, 0, 1, "compute")}}}},
                          {"traceEvents",
                           {{{"ph", "M"}, {"name", "thread_name"}, {"tid", 9}},
                            event(3, 10, 5, "compute", "qkv"),
                            event(0, 2, 4, "wait-weights"),
                            event(3, 1, 2, "publish"),
                            event(3, 0, 1, "unknown-kind"),
                            event(0, 0, 2, "wait-dependency")}}});
  CHECK(t.events() == 4);
  const Json w = t.window(0, 0, 10, 100);
  CHECK(w["sms"] == Json{0, 3});
  CHECK(w["begin_us"] == 0.0);
  CHECK(w["end_us"] == 15.0);
  CHECK(w["totals_us"] == Json{2.0, 4.0, 5.0, 2.0});  // in the order of kinds
  CHECK(w["kinds"] == Json{"wait-dependency", "wait-weights", "compute", "publish"});
  CHECK(w["events"]["sm"] == Json{0, 0, 1, 1});
  CHECK(w["events"]["start_us"] == Json{0.0, 2.0, 1.0, 10.0});
  CHECK(w["names"] == Json{"task", "qkv"});
  CHECK(w["events"]["name"] == Json{0, 0, 0, 1});

  const Json part = t.window(3, 12, 10, 100);
  CHECK(part["totals_us"] == Json{0.0, 3.0, 2.0, 0.0});  // clipped; the publish ended as the window begins
  CHECK(part["from_us"] == 3.0);
  CHECK(parsed(Json::array({event(1, 0, 1, "compute")})).events() == 1);  // Chrome also writes the bare list
}

TEST_CASE("what is no trace is refused") {
  for (const char* text :
       {"", "{", "[]", "{}", "{\"traceEvents\":[]}", "{\"traceEvents\":{}}", "null", "[{\"ph\":\"X\"}]", "{\"traceEvents\":[{\"ph\":\"M\"}]}x"})
    CHECK(refused(text));
  CHECK(refused(Json::array({event(-1, 0, 1, "compute")}).dump()));
  CHECK(refused(Json::array({event(5000, 0, 1, "compute")}).dump()));
  CHECK(refused(Json::array({event(1, 0, -1, "compute")}).dump()));
  CHECK(refused(Json::array({event(1, 1e300, 1, "compute")}).dump()));
  Json no_time = event(1, 0, 1, "compute");
  no_time.erase("dur");
  CHECK(refused(Json::array({no_time}).dump()));
  CHECK(refused("{\"traceEvents\":[" + std::string(100'000, '[')));
  const auto error = Trace::parse("{\"traceEvents\":[]}", "s1.json").error();
  CHECK(error.message.find("s1.json") != std::string::npos);
}

TEST_CASE("a window with too many events is coloured by what took most of each part") {
  // SM 4: parts of 1 us. 0: compute 0.6 of it; 1: wait; 2: nothing; 3 and 4: compute. Beside them it publishes: 0.4 of part 0, too little to show,
  // and from 3.4 to 4.9, which is most of 3 and of 4.
  const Trace t = parsed(Json::array({event(4, 0, 0.6, "compute"), event(4, 0.6, 0.4, "publish"), event(4, 1, 1, "wait-weights"),
                                      event(4, 3, 2, "compute"), event(4, 3.4, 1.5, "publish"), event(9, 0, 5, "wait-dependency")}));
  const Json w = t.window(0, 5, 5, 2);
  CHECK_FALSE(w.contains("events"));
  CHECK(w["bins"] == 5);
  CHECK(w["runs"]["sm"] == Json{0, 0, 0, 0, 1});
  CHECK(w["runs"]["bin"] == Json{0, 1, 3, 3, 0});
  CHECK(w["runs"]["length"] == Json{1, 1, 2, 2, 5});
  CHECK(w["runs"]["kind"] == Json{2, 1, 2, 3, 0});
}

TEST_CASE("runs agree with a count in small steps") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    Json events = Json::array();
    std::vector<int> kind_at(4000, -1);  // SM 0, by 0.1 us
    for (std::size_t at = 0; at + 200 < kind_at.size();) {
      at += rng.below(30);
      const std::size_t steps = 1 + rng.below(150);
      const int kind = static_cast<int>(rng.below(4));
      events.push_back(
          event(0, static_cast<double>(at) / 10, static_cast<double>(steps) / 10, std::string(kTraceKindNames[static_cast<std::size_t>(kind)])));
      std::fill_n(kind_at.begin() + static_cast<std::ptrdiff_t>(at), steps, kind);
      at += steps;
    }
    const Json w = parsed(events).window(0, 400, 40, 1);
    std::vector<int> got(40, -1);
    std::vector<bool> publishing(40, false);
    for (std::size_t i = 0; i < w["runs"]["bin"].size(); ++i) {
      const int from = w["runs"]["bin"][i], count = w["runs"]["length"][i], kind = w["runs"]["kind"][i];
      if (kind == 3)
        std::fill_n(publishing.begin() + from, count, true);
      else
        std::fill_n(got.begin() + from, count, kind);
    }
    for (std::size_t bin = 0; bin < 40; ++bin) {
      std::array<int, 4> steps{};
      for (std::size_t k = bin * 100; k < (bin + 1) * 100; ++k)
        if (kind_at[k] >= 0) ++steps[static_cast<std::size_t>(kind_at[k])];
      if (steps[3] != 50) CHECK(publishing[bin] == (steps[3] > 50));  // just half: as the sums round
      const int most = *std::max_element(steps.begin(), steps.end() - 1);
      if (most == 0) {
        CHECK(got[bin] == -1);
      } else {
        REQUIRE(got[bin] >= 0);
        CHECK(steps[static_cast<std::size_t>(got[bin])] == most);  // ties: either
      }
    }
  }
}

TEST_CASE("traces of a workspace: only by a plain id, read again when they change") {
  test::TempFolder folder;
  Traces traces(folder.path / "traces");
  CHECK(traces.list().empty());
  std::filesystem::create_directory(folder.path / "traces");
  const auto write = [&](const std::string& name, const Json& events) {
    std::ofstream(folder.path / "traces" / name) << Json{{"traceEvents", events}}.dump();
  };
  write("s0abc.json", Json::array({event(1, 0, 1, "compute")}));
  write("NOT-AN-ID.json", Json::array());
  std::ofstream(folder.path / "secret.json") << "{}";
  CHECK(traces.list().size() == 1);
  CHECK(traces.list()[0]["schedule_id"] == "s0abc");
  CHECK(traces.has("s0abc"));
  CHECK_FALSE(traces.has("../secret"));
  CHECK(traces.open("../secret").error().kind == ErrorKind::InvalidArgument);
  CHECK(traces.open("s0ab").error().kind == ErrorKind::NotFound);
  REQUIRE(traces.open("s0abc"));
  CHECK((*traces.open("s0abc"))->events() == 1);
  write("s0abc.json", Json::array({event(1, 0, 1, "compute"), event(1, 1, 1, "compute")}));
  CHECK((*traces.open("s0abc"))->events() == 2);
  std::ofstream(folder.path / "traces" / "s1.json") << "{\"traceEvents\":[{\"ph\":";
  CHECK(traces.open("s1").error().kind == ErrorKind::Corrupt);
}
