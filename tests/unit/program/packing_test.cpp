#include <doctest/doctest.h>

#include <map>
#include <set>

#include "core/program/packing.h"
#include "tests/unit/program/specs.h"

using namespace amk;
using namespace amk::test;

TEST_CASE("packed rows are a permutation of the logical rows, of every matrix and shape") {
  auto shapes = fixture_shapes();
  shapes.push_back(llama_1b());
  for (const ModelSpec& spec : shapes) {
    CAPTURE(spec.name);
    REQUIRE(check_packable(spec));
    const std::map<WeightKind, int> rows{{WeightKind::Q, spec.q_rows()},  {WeightKind::K, spec.kv_rows()},       {WeightKind::V, spec.kv_rows()},
                                         {WeightKind::O, spec.hidden},    {WeightKind::Gate, spec.intermediate}, {WeightKind::Up, spec.intermediate},
                                         {WeightKind::Down, spec.hidden}, {WeightKind::LmHead, spec.vocab}};
    for (Matrix m : {Matrix::Qkv, Matrix::O, Matrix::GateUp, Matrix::Down, Matrix::LmHead}) {
      std::map<WeightKind, std::set<int>> seen;
      for (int r = 0; r < packed_rows(spec, m); ++r) {
        const LogicalRow logical = logical_row(spec, m, r);
        REQUIRE(logical.row >= 0);
        REQUIRE(logical.row < rows.at(logical.kind));
        REQUIRE(seen[logical.kind].insert(logical.row).second);
      }
      std::size_t total = 0;
      for (const auto& [kind, set] : seen) {
        CHECK(static_cast<int>(set.size()) == rows.at(kind));
        total += set.size();
      }
      CHECK(static_cast<int>(total) == packed_rows(spec, m));
    }
  }
}

TEST_CASE("a unit of eight rows holds four rows and the partners they must meet") {
  const ModelSpec spec = llama_1b();  // head_dim 64: RoPE rotates i with i + 32
  for (int r = 0; r < spec.q_rows() + spec.kv_rows(); ++r) {
    const LogicalRow first = logical_row(spec, Matrix::Qkv, r / 8 * 8 + r % 4);
    const LogicalRow second = logical_row(spec, Matrix::Qkv, r / 8 * 8 + r % 4 + 4);
    REQUIRE(second.kind == first.kind);
    REQUIRE(second.row == first.row + 32);
    REQUIRE(first.row % 64 < 32);
  }
  // By hand: unit 1 of head 0 holds rows 4..7 and 36..39; the k rows follow 2048 q rows; v rows keep their order.
  CHECK(logical_row(spec, Matrix::Qkv, 8).row == 4);
  CHECK(logical_row(spec, Matrix::Qkv, 12).row == 36);
  CHECK(logical_row(spec, Matrix::Qkv, 2048 + 64 + 15).kind == WeightKind::K);
  CHECK(logical_row(spec, Matrix::Qkv, 2048 + 64 + 15).row == 64 + 39);
  CHECK(logical_row(spec, Matrix::Qkv, 2048 + 512 + 5).kind == WeightKind::V);
  CHECK(logical_row(spec, Matrix::Qkv, 2048 + 512 + 5).row == 5);
  CHECK(logical_row(spec, Matrix::GateUp, 10).kind == WeightKind::Gate);
  CHECK(logical_row(spec, Matrix::GateUp, 10).row == 6);
  CHECK(logical_row(spec, Matrix::GateUp, 14).kind == WeightKind::Up);
  CHECK(logical_row(spec, Matrix::GateUp, 14).row == 6);
}

TEST_CASE("a model that cannot be packed is refused by field and value") {
  const auto refused = [](auto change, const char* text) {
    ModelSpec spec = llama_1b();
    change(spec);
    const Status status = check_packable(spec);
    REQUIRE_FALSE(status);
    CHECK(status.error().kind == ErrorKind::Unsupported);
    CHECK(status.error().message == text);
  };
  refused([](ModelSpec& s) { s.head_dim = 36; }, "head_dim is 36; accepted: positive multiples of 8");
  refused([](ModelSpec& s) { s.hidden = 100; }, "hidden is 100; accepted: positive multiples of 8");
  refused([](ModelSpec& s) { s.intermediate = 98; }, "intermediate is 98; accepted: positive multiples of 4");
  refused([](ModelSpec& s) { s.kv_heads = 0; }, "kv_heads is 0; accepted: 1 to 4096");
  refused([](ModelSpec& s) { s.kv_heads = 5; }, "heads is 32; accepted: positive multiples of 5");
  refused([](ModelSpec& s) { s.vocab = -1; }, "vocab is -1; accepted: 1 to 16777216");
  refused([](ModelSpec& s) { s.intermediate = 2147483644; }, "intermediate is 2147483644; accepted: 1 to 16777216");
}
