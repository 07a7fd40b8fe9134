#include "kernels/det_gemm/tuned_table.h"

#include <doctest/doctest.h>

#include <array>
#include <filesystem>

#include "kernels/det_gemm/dispatch.h"
#include "tests/unit/det_gemm/targets.h"

using namespace amk;
using namespace amk::det_gemm;

namespace {

Json entry(std::int64_t m, int stages) {
  return {{"capability", "9.0"},
          {"sm_count", 132},
          {"op", "fwd"},
          {"weights", "kn"},
          {"out", "bf16"},
          {"bucket", {{"m", m}, {"n", 4096}, {"k", 4096}}},
          {"config", {{"tile", {{"m", 64}, {"n", 64}}}, {"consumers", 1}, {"cluster", {{"m", 1}}}, {"stages", stages}, {"epilogue", "staged"}}}};
}

TunedTable table_of(Json entries) {
  auto table = TunedTable::parse({{"schema", "amk.det_gemm.tuned/1"}, {"entries", std::move(entries)}});
  REQUIRE_MESSAGE(table, (table ? "" : table.error().message));
  return *table;
}

std::string parse_error(Json entries) {
  const auto table = TunedTable::parse({{"schema", "amk.det_gemm.tuned/1"}, {"entries", std::move(entries)}});
  REQUIRE_FALSE(table);
  CHECK(table.error().kind == ErrorKind::Corrupt);
  return table.error().message;
}

Result<Choice> chosen(const Problem& p, const TunedTable& table, std::vector<std::string> order, const char* target = "h200") {
  return choose(p, dense_storage(canonical(p)), gpu(target), table, order);
}

}  // namespace

TEST_CASE("bucket edges are few and stable") {
  CHECK(bucket_edge(0) == 1);
  CHECK(bucket_edge(1) == 1);
  CHECK(bucket_edge(2) == 8);
  CHECK(bucket_edge(9) == 16);
  CHECK(bucket_edge(64) == 64);
  CHECK(bucket_edge(65) == 128);
  CHECK(bucket_edge(14336) == 16384);
}

TEST_CASE("the shipped table loads, and each of its entries serves its own bucket") {
  const auto table = TunedTable::load(std::filesystem::path(AMK_SOURCE_DIR) / "config" / "tuned" / "det_gemm.json");
  REQUIRE_MESSAGE(table, (table ? "" : table.error().message));
  CHECK(table->entries().size() > 10);
  for (const TunedEntry& e : table->entries()) {
    Problem p{e.op, e.m, e.n, e.k, e.weights, e.out, e.chunk};
    if (e.op == Op::Da) p = {e.op, e.m, e.k, e.n, e.weights, e.out, e.chunk};
    if (e.op == Op::Db)
      p = e.weights == WeightLayout::KN ? Problem{e.op, e.k, e.n, e.m, e.weights, e.out, e.chunk}
                                        : Problem{e.op, e.k, e.m, e.n, e.weights, e.out, e.chunk};
    const auto choice = chosen(p, *table, {"tuned"});
    REQUIRE_MESSAGE(choice, (choice ? "" : choice.error().message));
    CHECK(choice->plan.config == e.config);
    CHECK(choice->origin.rfind("exact bucket", 0) == 0);
  }
}

TEST_CASE("exact bucket, then nearest, then default") {
  const TunedTable table = table_of(Json::array({entry(64, 4), entry(1024, 5)}));
  const Problem exact{.op = Op::Fwd, .M = 60, .N = 4000, .K = 3000}, near{.op = Op::Fwd, .M = 500, .N = 4096, .K = 4096};
  CHECK(chosen(exact, table, {})->plan.config.stages == 4);
  CHECK(chosen(exact, table, {})->origin == "exact bucket m64 n4096 k4096");
  CHECK(chosen(near, table, {})->plan.config.stages == 5);
  CHECK(chosen(near, table, {})->origin == "nearest bucket m1024 n4096 k4096");
  const auto other_op = chosen({.op = Op::Da, .M = 64, .N = 4096, .K = 4096}, table, {});
  CHECK(other_op->implementation == "default");
  REQUIRE(other_op->warnings.size() == 1);
  CHECK(other_op->warnings[0] == "tuned cannot serve this call: no entry for this device, op, layout and output");
  CHECK(chosen(exact, table, {}, "a100")->plan.config.path == Path::Mma);
  TunedTable newer = table;
  newer.append(table_of(Json::array({entry(64, 6)})));
  CHECK(newer.entries().size() == 2);
  CHECK(chosen(exact, newer, {})->plan.config.stages == 6);
}

TEST_CASE("a hit that cannot serve the actual call is passed over with a warning") {
  const TunedTable table = table_of(Json::array({entry(64, 4)}));
  const Problem odd{.op = Op::Fwd, .M = 64, .N = 4096, .K = 4095};  // K off 8: TMA cannot
  const auto choice = chosen(odd, table, {});
  REQUIRE(choice);
  CHECK(choice->implementation == "default");
  CHECK(choice->plan.config.path == Path::Mma);
  CHECK(choice->warnings.at(0).find("tma_alignment") != std::string::npos);
}

TEST_CASE("one name fails fast, a list falls through with warnings, an impossible list says why of each") {
  const Problem odd{.op = Op::Fwd, .M = 64, .N = 4096, .K = 4095};
  const auto alone = chosen(odd, {}, {"wgmma"});
  REQUIRE_FALSE(alone);
  CHECK(alone.error().message == "wgmma cannot serve this call: no config of this path fits the device, shape and alignment");
  const auto list = chosen(odd, {}, {"wgmma", "mma"});
  REQUIRE(list);
  CHECK(list->implementation == "mma");
  CHECK(list->warnings.size() == 1);
  const auto none = chosen(odd, {}, {"tuned", "wgmma"});
  REQUIRE_FALSE(none);
  CHECK(none.error().message.find("tuned cannot serve") != std::string::npos);
  CHECK(none.error().message.find("wgmma cannot serve") != std::string::npos);
  CHECK(chosen(odd, {}, {"cutlass"}).error().kind == ErrorKind::InvalidArgument);
  CHECK(chosen(odd, {}, {"cutlass", "mma"}).error().kind == ErrorKind::InvalidArgument);  // a typo never falls through
}

TEST_CASE("strict pins one schedule whatever M") {
  std::array<Config, 4> configs;
  std::size_t i = 0;
  for (const std::int64_t m : {1, 64, 500, 8192}) configs[i++] = chosen({.op = Op::Fwd, .M = m, .N = 4096, .K = 4096}, {}, {"strict"})->plan.config;
  CHECK(configs[0] == configs[1]);
  CHECK(configs[1] == configs[2]);
  CHECK(configs[2] == configs[3]);
}

TEST_CASE("a table with a wrong entry is refused, by entry and field") {
  Json bad = entry(64, 4);
  bad["bucket"]["m"] = 100;
  CHECK(parse_error(Json::array({entry(64, 4), bad})).rfind("entries[1]: bucket.m is 100; accepted: a bucket edge", 0) == 0);
  bad = entry(64, 4);
  bad["config"]["stages"] = 16;  // 16 stages of 16 KiB do not fit
  CHECK(parse_error(Json::array({bad})).find("shared_memory") != std::string::npos);
  bad = entry(64, 4);
  bad["op"] = "forward";
  CHECK(parse_error(Json::array({bad})) == "entries[0]: op is \"forward\"; accepted: fwd, da, db");
  bad = entry(64, 4);
  bad["capability"] = "ten";
  CHECK(parse_error(Json::array({bad})).rfind("entries[0]: capability is \"ten\"", 0) == 0);
  bad = entry(64, 4);
  bad.erase("config");
  CHECK(parse_error(Json::array({bad})).rfind("entries[0]: config is null", 0) == 0);
  CHECK_FALSE(TunedTable::parse(Json::array()));
  CHECK_FALSE(TunedTable::parse({{"schema", "other"}, {"entries", Json::array()}}));
  CHECK(TunedTable::load("/nonexistent/file").error().kind == ErrorKind::Io);
}

TEST_CASE("what is written is read back") {
  const TunedTable table = table_of(Json::array({entry(64, 4), entry(1024, 5)}));
  const auto again = TunedTable::parse(tuned_file(table.entries()));
  REQUIRE(again);
  CHECK(tuned_file(again->entries()) == tuned_file(table.entries()));
}
