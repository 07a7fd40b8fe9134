// Several sequences: every one's part of the program is the program of one sequence.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "core/base/json.h"
#include "core/program/lower.h"
#include "core/program/program_json.h"
#include "core/program/validator.h"
#include "core/schedule/random_config.h"
#include "tests/unit/program/specs.h"

using namespace amk;
using namespace amk::test;

namespace {

struct Pair {
  Program one, many;
};

Pair lowered_pair(const ModelSpec& spec, const ScheduleConfig& config, int sms, int max_seq, int batch) {
  LoweringTarget target{sms, 232448, max_seq, {}};
  const auto one = lower(spec, config, target, {});
  target.batch = batch;
  const auto many = lower(spec, config, target, {});
  REQUIRE_MESSAGE(one, (one ? "" : one.error().message));
  REQUIRE_MESSAGE(many, (many ? "" : many.error().message));
  return {*one, *many};
}

// Regions by name, of one sequence, moved to where a batch of one has them.
using Named = std::multiset<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::int32_t>>;
Named regions_of(const Program& p, const std::vector<Region>& list, int seq) {
  Named out;
  for (const Region& r : list) {
    const Buffer& b = p.buffers[static_cast<std::size_t>(r.buffer)];
    const bool shared = b.space == Space::Weight || b.space == Space::Const;
    const std::int64_t slice = shared ? b.bytes : b.bytes / p.batch;
    if (!shared && (r.begin < seq * slice || r.end > (seq + 1) * slice)) continue;
    const std::int64_t base = shared ? 0 : seq * slice;
    out.insert({b.name, r.begin - base, r.end - base, r.pos_stride, r.pos_lo});
  }
  return out;
}

bool of_one_sequence(const Task& t) { return t.op == Opcode::AttentionTile || t.op == Opcode::Argmax; }

}  // namespace

TEST_CASE("a batch holds each sequence's program, and reads weights once") {
  Rng rng(77);
  for (const ModelSpec& spec : fixture_shapes()) {
    for (int i = 0; i < 6; ++i) {
      const int batch = 2 + static_cast<int>(rng.below(7));
      const ScheduleConfig config = random_accepted_config(232448, rng);
      const auto [one, many] = lowered_pair(spec, config, 1 + static_cast<int>(rng.below(20)), 300, batch);
      CAPTURE(spec.name);
      CAPTURE(batch);
      const std::string text = to_json(config).dump();
      CAPTURE(text);
      const Validation v = validate(many);
      CHECK_MESSAGE(v.valid(), (v.valid() ? "" : v.rejection->message));
      CHECK(many.batch == batch);
      CHECK(many.attention.splits == one.attention.splits);
      CHECK(one.attention.split_step == one.attention.splits);
      // What all sequences do together: the same tasks, in the same order, on the same SMs.
      std::vector<const Task*> together, alone;
      for (const Task& t : many.tasks)
        if (!of_one_sequence(t)) together.push_back(&t);
      for (const Task& t : one.tasks)
        if (!of_one_sequence(t)) alone.push_back(&t);
      REQUIRE(together.size() == alone.size());
      bool same = true;
      for (std::size_t t = 0; t < alone.size(); ++t)
        for (int s = 0; s < batch; ++s)
          same = same && regions_of(many, together[t]->reads, s) == regions_of(one, alone[t]->reads, 0) &&
                 regions_of(many, together[t]->writes, s) == regions_of(one, alone[t]->writes, 0) && together[t]->ring_bytes == alone[t]->ring_bytes;
      CHECK(same);
      // Attention and argmax: a sequence's tasks together write what the tasks of one sequence write, from the same rows of its own cache.
      for (int s = 0; s < batch; ++s) {
        Named wrote, expected, read, wanted;
        for (const Task& t : many.tasks)
          if (of_one_sequence(t) && t.seq == s) {
            wrote.merge(regions_of(many, t.writes, s));
            for (const auto& r : regions_of(many, t.reads, s)) read.insert(r);
            CHECK(regions_of(many, t.reads, s).size() == t.reads.size());  // nothing of another sequence
            CHECK(regions_of(many, t.writes, s).size() == t.writes.size());
          }
        for (const Task& t : one.tasks)
          if (of_one_sequence(t)) {
            expected.merge(regions_of(one, t.writes, 0));
            for (const auto& r : regions_of(one, t.reads, 0)) wanted.insert(r);
          }
        CHECK(wrote == expected);
        for (const auto& r : read) CHECK(wanted.count(r) > 0);
      }
    }
  }
}

TEST_CASE("attention tasks of a batch: no more than the SMs, all of a head's splits among them") {
  const auto [one, many] = lowered_pair(llama_1b(), ScheduleConfig{}, 132, 4096, 8);
  CHECK(one.attention.splits == 16);  // 132 / 8 kv heads
  CHECK(many.attention.splits == 16);
  CHECK(many.attention.split_step == 2);  // 132 / (8 kv heads * 8 sequences)
  std::map<std::pair<int, int>, std::set<int>> splits;
  std::size_t of_layer = 0;
  for (const Task& t : many.tasks) {
    if (t.op != Opcode::AttentionTile || t.layer != 3) continue;
    ++of_layer;
    for (int s = t.split; s < t.splits; s += many.attention.split_step) splits[{t.seq, t.head}].insert(s);
    CHECK(t.writes.size() == 8);
    CHECK(t.pos_lo == t.split * many.attention.kv_block);
  }
  CHECK(of_layer == 128);
  CHECK(splits.size() == 64);
  for (const auto& [who, set] : splits) CHECK(set.size() == 16);
}

TEST_CASE("batches that are none, and JSON of one that is") {
  LoweringTarget target{4, 232448, 64, {}};
  for (const int batch : {0, -1, 9}) {
    target.batch = batch;
    const auto refused = lower(fixture_shapes()[2], {}, target, {});
    REQUIRE(!refused);
    CHECK(refused.error().data["field"] == "target.batch");
  }
  target.batch = 5;
  const auto program = lower(fixture_shapes()[2], {}, target, {});
  REQUIRE(program);
  const Json json = to_json(*program);
  CHECK(json["batch"] == 5);
  const auto again = program_from_json(json);
  REQUIRE_MESSAGE(again, (again ? "" : again.error().message));
  CHECK(to_json(*again) == json);
}
