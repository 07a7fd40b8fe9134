// A run that is taken up where it stood.
#include <doctest/doctest.h>

#include "core/base/json.h"
#include "orchestrator/service/service.h"
#include "tests/support/store_in.h"
#include "tests/support/temp_folder.h"

using namespace amk;

namespace {

struct Halves {
  Halves() {
    store = test::store_in(folder.path).value();
    service = Service::create({folder.path, std::filesystem::path(AMK_SOURCE_DIR) / "config" / "gpus", "test"}, *store, judge).value();
    request.model = "toy";
    request.gpu = "h200";
    request.device = "cpu";
    request.iters = 12;
    request.overnight = true;
    request.seed = 4;
  }
  std::vector<std::string> tried() const {
    std::vector<std::string> out;
    const auto read = service->campaigns().replay(service->campaigns().resolve("").value(), 0, [&](const Experiment& e) {
      out.push_back(e.schedule_id);
      return true;
    });
    CHECK(read.has_value());
    return out;
  }
  test::TempFolder folder;
  CpuJudge judge;
  std::unique_ptr<Store> store;
  std::unique_ptr<Service> service;
  SearchRequest request;
};

}  // namespace

TEST_CASE("a run that was stopped goes on as if it had not been, and may be stopped while it finds its place") {
  Halves whole, halves;
  REQUIRE(whole.service->autoresearch(whole.request, {}));
  const std::vector<std::string> wanted = whole.tried();
  REQUIRE(wanted.size() == 12);

  std::stop_source stop;
  Progress progress;
  progress.stop = stop.get_token();
  progress.report = [&](double, std::string_view) {
    const auto there = halves.service->campaigns().resolve("");
    if (there && halves.tried().size() >= 5) stop.request_stop();
  };
  const auto half = halves.service->autoresearch(halves.request, progress);
  const std::size_t done = halves.tried().size();
  CHECK(done >= 5);
  CHECK(done < 12);
  // Stopped before it has read what it did: nothing is tried, nothing is lost.
  progress.report = nullptr;
  const auto nothing = halves.service->autoresearch(halves.request, progress);
  REQUIRE_FALSE(nothing);
  CHECK(nothing.error().kind == ErrorKind::Cancelled);
  CHECK(halves.tried().size() == done);
  REQUIRE(halves.service->autoresearch(halves.request, {}));
  CHECK(halves.tried() == wanted);
}
