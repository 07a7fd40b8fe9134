// Stores as every published schema version wrote them (tests/fixtures/store/v<N>.sql, a dump of a real one; v<N>.json: what SQL says of it, counted
// by another program): each opens with this build, keeps what it held, and takes new work. A version without its fixture fails here.
#include <doctest/doctest.h>

#include <fstream>

#include "core/base/hash.h"
#include "core/base/parse_json.h"
#include "orchestrator/campaign/campaign.h"
#include "orchestrator/results/results.h"
#include "orchestrator/store/failpoint.h"
#include "orchestrator/store/schema.h"
#include "orchestrator/store/sqlite.h"
#include "tests/crash/audit.h"
#include "tests/crash/child.h"
#include "tests/crash/stores.h"
#include "tests/support/temp_folder.h"
#include "tests/support/verdicts.h"

using namespace amk;
using namespace amk::test;

namespace {

// Of the SQL of each published step: what was published never changes, or stores in the field would differ from what this build believes.
const char* const kPublished[] = {"a173f9920f0210dc82213556dc54e71b"};

std::filesystem::path fixture(int version, const char* extension) {
  return std::filesystem::path(AMK_SOURCE_DIR) / "tests/fixtures/store" / ("v" + std::to_string(version) + extension);
}

void restore(int version, const std::filesystem::path& workspace) {
  const std::string dump = slurp(fixture(version, ".sql"));
  REQUIRE_MESSAGE(!dump.empty(), "no fixture of schema version " << version);
  auto file = sql::Connection::open((workspace / "store.sqlite").string(), {.create = true, .read_only = false, .vfs = {}});
  REQUIRE(file);
  const Status made = (*file)->exec(dump);
  REQUIRE_MESSAGE(made, made.error().message);
}

void check_content(const std::filesystem::path& folder, int version, const Schema* schema) {
  for (const std::string& problem : audit(options_for(folder, schema), {}, false)) FAIL_CHECK(problem);
  const auto expected = parse_json(slurp(fixture(version, ".json")), "expected");
  REQUIRE(expected);
  auto store = Store::open(options_for(folder, schema));
  REQUIRE_MESSAGE(store, store.error().message);
  CHECK((*store)->health().schema_version == (schema != nullptr ? *schema : current_schema()).version());
  auto campaigns = CampaignService::create(**store);
  REQUIRE(campaigns);
  const auto status = (*campaigns)->status(std::nullopt);
  REQUIRE(status);
  std::size_t found = 0;
  for (const Json& want : expected->at("campaigns")) {
    CAPTURE(want.dump());
    for (const Json& got : status->at("campaigns")) {
      if (got.at("campaign") != want.at("campaign")) continue;
      ++found;
      CHECK(got.at("workload") == want.at("workload"));
      CHECK(got.at("ended") == want.at("ended"));
      CHECK(got.at("kept") == want.at("kept"));
      CHECK(got.at("best_latency_us") == want.at("best_latency_us"));
    }
    const auto id = (*campaigns)->resolve(want.at("campaign").get<std::string>());
    REQUIRE(id);
    const auto best = (*campaigns)->best(*id);
    REQUIRE(best);
    REQUIRE(*best);
    CHECK((*best)->schedule_id == want.at("best_schedule_id").get<std::string>());
    CHECK(to_string((*best)->id) == want.at("best_experiment").get<std::string>());
  }
  CHECK(found == expected->at("campaigns").size());
  const auto foreign = foreign_rows(**store, "", "", 100);
  REQUIRE(foreign);
  CHECK(foreign->size() == expected->at("foreign_rows").get<std::size_t>());

  // And it takes new work.
  const auto id = (*campaigns)->resolve(expected->at("campaigns")[0].at("campaign").get<std::string>());
  BeginRequest request;
  const Verdict verdict = verdict_of({{"n", 7}}, 1000);
  request.config = verdict.config;
  request.schedule_id = verdict.schedule_id;
  const auto ticket = (*campaigns)->begin(*id, std::move(request));
  REQUIRE_MESSAGE(ticket, ticket.error().message);
  CHECK((*campaigns)->lose(*ticket, "only a test"));
}

}  // namespace

TEST_CASE("published schema steps stay as they were") {
  const Schema& schema = current_schema();
  REQUIRE(schema.steps.size() == std::size(kPublished));
  for (std::size_t i = 0; i < schema.steps.size(); ++i) {
    CHECK(schema.steps[i].version == static_cast<int>(i) + 1);
    CHECK_MESSAGE(hash128_hex(schema.steps[i].sql) == kPublished[i], "step " << i + 1 << " of the schema was published: add another instead");
  }
}

TEST_CASE("a store of every schema version so far opens, keeps what it held and is backed up before it changes") {
  const Schema later = next_schema();
  for (int version = 1; version <= current_schema().version(); ++version) {
    CAPTURE(version);
    for (const Schema* schema : {static_cast<const Schema*>(nullptr), &later}) {
      TempFolder folder;
      restore(version, folder.path);
      check_content(folder.path, version, schema);
      const bool changed = version < (schema != nullptr ? *schema : current_schema()).version();
      const auto backup = folder.path / "backups" / ("store-v" + std::to_string(version) + "-1.sqlite");
      CHECK(std::filesystem::exists(backup) == changed);
      if (!changed) continue;
      TempFolder restored;
      std::filesystem::copy_file(backup, restored.path / "store.sqlite");
      check_content(restored.path, version, nullptr);
    }
  }
}

TEST_CASE("a migration of an old store that is killed goes on at the next opening") {
  const Schema later = next_schema();
  for (int version = 1; version <= current_schema().version(); ++version) {
    for (const char* spec : {"migrate.backup=kill@1", "migrate.backup-done=kill@1", "backup.copied=kill@1", "migrate.step=kill@1",
                             "migrate.step-done=kill@1", "vfs.db.write=kill@3", "vfs.wal.sync=kill@1"}) {
      CAPTURE(version);
      CAPTURE(spec);
      TempFolder folder;
      restore(version, folder.path);
      (void)run_child([&] {
        if (!failpoint::arm(spec)) return 2;
        return Store::open(options_for(folder.path, &later)) ? 0 : 1;
      });
      check_content(folder.path, version, &later);
    }
  }
}

TEST_CASE("a store of a later version is refused, to the byte") {
  TempFolder folder;
  restore(1, folder.path);
  {
    auto file = sql::Connection::open((folder.path / "store.sqlite").string(), {.create = false, .read_only = false, .vfs = {}});
    REQUIRE(file);
    REQUIRE((*file)->exec("PRAGMA user_version = " + std::to_string(current_schema().version() + 1)));
  }
  const std::string before = slurp(folder.path / "store.sqlite");
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto refused = Store::open(options_for(folder.path));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == ErrorKind::Unsupported);
    CHECK(refused.error().data.value("reason", "") == "newer-schema");
  }
  CHECK(slurp(folder.path / "store.sqlite") == before);
  CHECK_FALSE(std::filesystem::exists(folder.path / "backups"));
}
