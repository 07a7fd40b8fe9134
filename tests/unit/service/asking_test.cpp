// Who only asks, or asks for what there is not, starts no campaign.
#include <doctest/doctest.h>

#include "core/base/json.h"
#include "orchestrator/service/service.h"
#include "tests/support/store_in.h"
#include "tests/support/temp_folder.h"

using namespace amk;

namespace {

struct Empty {
  Empty() {
    store = test::store_in(folder.path).value();
    service = Service::create({folder.path, std::filesystem::path(AMK_SOURCE_DIR) / "config" / "gpus", "test"}, *store, judge).value();
  }
  bool has_campaign() const {
    const auto id = service->campaigns().resolve("");
    if (!id) CHECK(id.error().kind == ErrorKind::NotFound);
    return id.has_value();
  }
  test::TempFolder folder;
  CpuJudge judge;
  std::unique_ptr<Store> store;
  std::unique_ptr<Service> service;
};

}  // namespace

TEST_CASE("propose starts no campaign, and names the one that there is") {
  Empty lab;
  const auto asked = lab.service->propose("toy", "h200", "cpu");
  REQUIRE_MESSAGE(asked, (asked ? "" : asked.error().message));
  CHECK((*asked)["campaign"].is_null());
  CHECK((*asked)["incumbent_is"] == "default");
  CHECK((*asked)["tried"]["experiments"] == 0);
  CHECK_FALSE((*asked)["suggestions"].empty());
  CHECK_FALSE(lab.has_campaign());
  EvalRequest eval;
  eval.model = "toy";
  eval.gpu = "h200";
  eval.device = "cpu";
  REQUIRE(lab.service->eval(eval, {}));
  const auto after = lab.service->propose("toy", "h200", "cpu");
  REQUIRE(after);
  CHECK((*after)["campaign"] == to_string(lab.service->campaigns().resolve("").value()));
  CHECK((*after)["incumbent_is"] == "default");  // a verdict alone is no experiment: who asked for it records it
  SearchRequest search;
  search.model = "toy";
  search.gpu = "h200";
  search.device = "cpu";
  search.budget = 1;
  REQUIRE(lab.service->loop(search, {}));
  const auto searched = lab.service->propose("toy", "h200", "cpu");
  REQUIRE(searched);
  CHECK((*searched)["campaign"] == (*after)["campaign"]);
  CHECK((*searched)["incumbent_is"] == "best");
  CHECK((*searched)["tried"]["experiments"] == 1);
  CHECK(lab.service->propose("toy", "h100", "cpu").value()["campaign"].is_null());
}

TEST_CASE("a search that is refused starts no campaign") {
  Empty lab;
  SearchRequest request;
  request.model = "toy";
  request.gpu = "h200";
  request.device = "cpu";
  request.budget = 1;
  request.strategy = "guessing";
  CHECK(lab.service->loop(request, {}).error().kind == ErrorKind::InvalidArgument);
  CHECK(lab.service->autoresearch(request, {}).error().kind == ErrorKind::InvalidArgument);
  request.strategy.clear();
  request.start_config = Json{{"pipelining_depth", 9}};
  CHECK_FALSE(lab.service->loop(request, {}));
  request.start_config = Json{{"sm_assignment", {{"L0.qkv.0", 1}}}};  // a config without a point
  CHECK_FALSE(lab.service->loop(request, {}));
  CHECK_FALSE(lab.has_campaign());
}
