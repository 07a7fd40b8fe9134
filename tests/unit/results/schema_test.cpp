// What leaves the program conforms to the schemas that are published for it.
#include <fstream>
#include <iterator>

#include "orchestrator/results/formats.h"
#include "server/protocol/schema.h"
#include "tests/unit/campaign/fixture.h"

using namespace amk;
using namespace amk::test;

namespace {

Json schema_named(const std::string& name) {
  std::ifstream in(std::string(AMK_SOURCE_DIR) + "/schemas/" + name + ".schema.json");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  Json schema = must(parse_json(text, name));
  must(mcp::check_schema(schema));
  return schema;
}

}  // namespace

TEST_CASE("experiments, campaigns and corpus lines conform to their schemas, in every state") {
  const Json experiment = schema_named("experiment"), campaign = schema_named("campaign"), corpus = schema_named("corpus");
  Lab lab;
  const auto conforms = [&] {
    const Status status = mcp::validate(campaign, must(lab.service->status(lab.campaign)));
    CHECK_MESSAGE(status, (status ? "" : status.error().message));
  };
  conforms();
  const Ticket running = lab.begin(config(50));
  conforms();
  const Recorded baseline = lab.run(1, 200);
  const Status line = mcp::validate(corpus, must(parse_json(corpus_line(baseline.experiment, must(lab.service->info(lab.campaign))), "line")));
  CHECK_MESSAGE(line, (line ? "" : line.error().message));
  for (int status = 1; status <= 5; ++status) lab.run(bad(config(10 + status), static_cast<VerdictStatus>(status)));
  lab.run(verdict_of(config(20), 10));  // below the floor
  lab.run(21, 55);                      // near the floor: done
  conforms();
  CHECK(must(lab.service->status(lab.campaign))["state"] == "done");
  must(lab.service->lose(running, "cancelled"));
  CampaignPolicy policy{0, -1, 3'600'000'000, 100.0};
  must(lab.service->reopen(lab.campaign, policy));
  conforms();
  int seen = 0;
  must(lab.service->replay(lab.campaign, 0, [&](const Experiment& e) {
    const Status status = mcp::validate(experiment, to_json(e));
    CHECK_MESSAGE(status, (status ? "" : status.error().message));
    ++seen;
    return true;
  }));
  CHECK(seen == 9);
}
