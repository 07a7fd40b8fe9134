// Each knob changes the program in the way docs/schedule.md says, and in no other.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "core/base/parse_json.h"
#include "core/program/lower.h"
#include "core/program/packing.h"
#include "core/program/program_json.h"
#include "tests/unit/program/specs.h"

using namespace amk;
using namespace amk::test;

namespace {

const LoweringTarget kTarget{132, 232448, 2048, {}};

Program lowered(const ModelSpec& spec, const ScheduleConfig& config, const LoweringTarget& target = kTarget) {
  auto program = lower(spec, config, target, {});
  REQUIRE_MESSAGE(program, program.error().message);
  return std::move(*program);
}

// Four layers of llama-3.2-1b: its shape, quickly lowered.
ModelSpec model() {
  ModelSpec spec = llama_1b();
  spec.layers = 4;
  spec.vocab = 4000;
  return spec;
}

const Instruction* find(const Program& p, std::string_view name) {
  for (const Instruction& in : p.instructions)
    if (in.name == name) return &in;
  return nullptr;
}

std::vector<const Task*> tasks_of(const Program& p, std::string_view name) {
  std::vector<const Task*> found;
  for (const Task& t : p.tasks)
    if (p.instructions[static_cast<std::size_t>(t.instruction)].name == name) found.push_back(&t);
  return found;
}

std::vector<std::string> wait_names(const Program& p, const Task& t) {
  std::vector<std::string> names;
  for (const Wait& w : t.waits) names.push_back(p.counters[static_cast<std::size_t>(w.counter)].name);
  return names;
}

// The two programs as JSON, without what is expected to differ, are the same text.
bool same_but_for(const Program& a, const Program& b, const std::vector<std::string>& pointers) {
  Json ja = to_json(a), jb = to_json(b);
  for (Json* json : {&ja, &jb}) {
    (*json)["schedule_id"] = "";
    for (const std::string& pointer : pointers) (*json)[Json::json_pointer(pointer)] = nullptr;
  }
  return ja == jb;
}

std::int64_t activation_bytes(const Program& p) {
  std::int64_t bytes = 0;
  for (const Storage& s : p.storages)
    if (s.space == Space::Activation) bytes += s.bytes;
  return bytes;
}

}  // namespace

TEST_CASE("N_tile: rows of a tile, and the unit in which tasks are cut") {
  for (int n : {8, 24, 64, 512}) {
    ScheduleConfig config;
    config.gemv_n_tile = n;
    const Program p = lowered(model(), config);
    CHECK(find(p, "L1.gate_up")->tiles == (16384 + n - 1) / n);
    CHECK(find(p, "L1.qkv")->tiles == (3072 + n - 1) / n);
    CHECK(find(p, "lm_head")->tiles == (4000 + n - 1) / n);
    CHECK(find(p, "embed")->tiles == (2048 + n - 1) / n);
    for (const Task* t : tasks_of(p, "L1.gate_up")) {
      CHECK(t->row_begin % n == 0);
      CHECK((t->row_end % n == 0 || t->row_end == 16384));
    }
    // Coalescing: no SM has two tasks of one instruction, however small the tile.
    CHECK(tasks_of(p, "L1.gate_up").size() == static_cast<std::size_t>(std::min(132, (16384 + n - 1) / n)));
  }
}

TEST_CASE("kv_block: splits, and the position from which each is active") {
  for (const auto& [block, max_seq, splits] :
       {std::tuple{64, 2048, 16}, {512, 2048, 4}, {256, 300, 2}, {512, 512, 1}, {128, 129, 2}, {64, 131072, 16}}) {
    ScheduleConfig config;
    config.attention_kv_block = block;
    const Program p = lowered(model(), config, {132, 232448, max_seq, {}});
    CHECK(p.attention.kv_block == block);
    CHECK(p.attention.splits == splits);
    const auto tiles = tasks_of(p, "L2.attention");
    CHECK(tiles.size() == static_cast<std::size_t>(8 * splits));
    for (const Task* t : tiles) {
      CHECK(t->splits == splits);
      CHECK(t->pos_lo == t->split * block);
    }
    const auto combines = tasks_of(p, "L2.combine");
    CHECK(combines.empty() == (splits == 1));
    for (const Task* t : combines) {
      REQUIRE(t->reads.size() == static_cast<std::size_t>(splits));
      for (int s = 0; s < splits; ++s) CHECK(t->reads[static_cast<std::size_t>(s)].pos_lo == s * block);
    }
    if (splits == 1) CHECK(p.buffers[static_cast<std::size_t>(tiles[0]->writes[0].buffer)].name == "L2.attn");
  }
}

TEST_CASE("max_splits: no more splits than that, and as many as before where there are fewer") {
  for (const auto& [most, block, max_seq, batch, splits, step] : {std::tuple{0, 64, 2048, 1, 16, 16},
                                                                  {8, 64, 2048, 1, 8, 8},
                                                                  {2, 64, 2048, 1, 2, 2},
                                                                  {4, 512, 1024, 1, 2, 2},
                                                                  {0, 64, 2048, 8, 16, 2},
                                                                  {2, 64, 2048, 8, 2, 2},
                                                                  {4, 64, 2048, 8, 4, 2}}) {
    ScheduleConfig config;
    config.attention_kv_block = block;
    config.attention_max_splits = most;
    LoweringTarget target{132, 232448, max_seq, {}};
    target.batch = batch;
    const Program p = lowered(model(), config, target);
    CHECK(p.attention.splits == splits);
    CHECK(p.attention.split_step == step);
    CHECK(tasks_of(p, "L2.attention").size() == static_cast<std::size_t>(8 * batch * step));
  }
}

TEST_CASE("kv_block with a sliding window: a split is active from its first block on, whatever the window") {
  ModelSpec spec = model();
  spec.sliding_window = 100;
  const Program p = lowered(spec, {});
  for (const Task* t : tasks_of(p, "L0.attention")) {
    CHECK(t->pos_lo == t->split * 64);
    CHECK(t->pos_hi == kAllPositions);
  }
}

TEST_CASE("fusion_grouping: every atom removes the instructions it joins") {
  struct Expectation {
    bool Fusion::*atom;
    std::vector<std::string> separate;  // instructions that exist only when the atom is off
    const char* host;
    std::uint32_t flag;
  };
  const Expectation table[] = {
      {&Fusion::norm_qkv, {"L1.attn_norm"}, "L1.qkv", kFusedNorm},
      {&Fusion::qkv_rope_append, {"L1.rope", "L1.kv_append"}, "L1.qkv", kFusedRopeAppend},
      {&Fusion::combine_o, {"L1.combine"}, "L1.o_proj", kFusedCombine},
      {&Fusion::o_add, {"L1.o_proj_add"}, "L1.o_proj", kFusedResidualAdd},
      {&Fusion::norm_gate_up, {"L1.mlp_norm"}, "L1.gate_up", kFusedNorm},
      {&Fusion::gate_up_silu, {"L1.silu_mul"}, "L1.gate_up", kFusedSiluMul},
      {&Fusion::down_add, {"L1.down_add"}, "L1.down", kFusedResidualAdd},
      {&Fusion::norm_lm_head, {"final_norm"}, "lm_head", kFusedNorm},
      {&Fusion::lm_head_argmax, {"argmax_partial"}, "lm_head", kFusedArgmax},
  };
  for (const bool others : {false, true}) {
    for (const Expectation& e : table) {
      ScheduleConfig config;
      config.fusion = {others, others, others, others, others, others, others, others, others};
      config.fusion.*e.atom = true;
      const Program on = lowered(model(), config);
      config.fusion.*e.atom = false;
      const Program off = lowered(model(), config);
      CAPTURE(e.host);
      for (const std::string& name : e.separate) {
        CHECK(find(on, name) == nullptr);
        CHECK(find(off, name) != nullptr);
      }
      CHECK((find(on, e.host)->fused & e.flag) != 0);
      CHECK((find(off, e.host)->fused & e.flag) == 0);
      for (const Task* t : tasks_of(on, e.host)) CHECK(t->fused == find(on, e.host)->fused);
    }
  }
  // All off: the sixteen operators of a step are separate instructions (and the final argmax over partials).
  ScheduleConfig plain;
  plain.fusion = {false, false, false, false, false, false, false, false, false};
  CHECK(lowered(model(), plain).instructions.size() == 1 + 4 * 13 + 4);
}

TEST_CASE("attention+combine: nothing is split, nothing merged; with combine+o_proj one instruction, a task an SM") {
  ScheduleConfig config;
  config.fusion.attention_combine = true;
  const Program alone = lowered(model(), config);
  CHECK(alone.attention.splits == 1);
  CHECK(find(alone, "L1.combine") == nullptr);
  CHECK(tasks_of(alone, "L1.attention")[0]->writes[0].buffer == alone.find_buffer("L1.attn"));

  config.fusion.combine_o = true;
  config.kernel.publish = Publish::Flagged;
  config.kernel.gemv_path = GemvPath::Slices;
  const ModelSpec& spec = model();
  const Program p = lowered(spec, config);
  CHECK(find(p, "L1.attention") == nullptr);
  CHECK(find(p, "L1.o_proj") == nullptr);
  std::set<std::pair<int, int>> sms;
  std::vector<int> rows(static_cast<std::size_t>(spec.kv_heads), 0);
  for (const Task* t : tasks_of(p, "L1.attention_o")) {
    CHECK(t->ring_bytes == 0);
    CHECK(sms.insert({t->sm, 0}).second);  // no SM computes two heads' attention
    rows[static_cast<std::size_t>(t->head)] += t->row_end - t->row_begin;
  }
  for (const int n : rows) CHECK(n == spec.hidden);
  // Whoever reads the new residual reads every head's sum of it.
  const BufferId sums = p.find_buffer("x3");
  CHECK(p.buffers[static_cast<std::size_t>(sums)].shape == std::vector<std::int64_t>{spec.kv_heads, spec.hidden});
  CHECK(tasks_of(p, "L1.gate_up")[0]->reads[0].end == std::int64_t{4} * spec.kv_heads * spec.hidden);
  const Task* down = tasks_of(p, "L1.down")[0];
  CHECK(std::count_if(down->reads.begin(), down->reads.end(), [&](const Region& r) { return r.buffer == sums; }) == spec.kv_heads);
  // Fewer SMs than heads: a task a head.
  CHECK(tasks_of(lowered(spec, config, {2, 232448, 256, {}}), "L0.attention_o").size() == static_cast<std::size_t>(spec.kv_heads));
}

TEST_CASE("fused combine of one split is no combine at all") {
  ScheduleConfig config;
  config.fusion.combine_o = true;
  const Program p = lowered(model(), config, {132, 232448, 64, {}});
  CHECK(p.attention.splits == 1);
  CHECK((find(p, "L0.o_proj")->fused & kFusedCombine) == 0);
  CHECK(p.find_buffer("L0.partials") == kNone);
}

TEST_CASE("sm_assignment round_robin: tile t on SM t mod SMs") {
  ScheduleConfig config;
  config.sm_assignment = SmAssignment::RoundRobin;
  const Program p = lowered(model(), config);
  for (const char* name : {"L0.qkv", "L3.down", "embed"}) {
    int tile = 0;
    for (const Task* t : tasks_of(p, name)) {
      CHECK(t->sm == tile % 132);
      CHECK(t->row_begin == tile * 16);
      ++tile;
    }
    CHECK(tile == find(p, name)->tiles);
  }
  // One SM: neighbouring tiles are one task.
  CHECK(tasks_of(lowered(model(), config, {1, 232448, 2048, {}}), "L0.qkv").size() == 1);
}

TEST_CASE("sm_assignment load_balance: the first split, all that a short context has, visits other SMs in every layer") {
  const Program p = lowered(model(), {});
  std::set<int> sms;
  for (const Task& t : p.tasks)
    if (t.op == Opcode::AttentionTile && t.split == 0) sms.insert(t.sm);
  CHECK(sms.size() > 3 * 8);  // of 4 layers x 8 kv heads
}

TEST_CASE("sm_assignment load_balance: attention goes to those with the fewest rows of the products before it, and not to those without any") {
  // 3,072 rows in tiles of 8 are 384 on 132 SMs: 12 have two tiles, 120 have three.
  ScheduleConfig config;
  config.gemv_n_tile = 8;
  const Program p = lowered(model(), config);
  for (int layer = 0; layer < 4; ++layer) {
    const std::string prefix = "L" + std::to_string(layer);
    std::map<int, int> rows;
    for (const Task* t : tasks_of(p, prefix + ".qkv")) rows[t->sm] += t->row_end - t->row_begin;
    std::vector<int> before;  // by split, and head
    for (const Task* t : tasks_of(p, prefix + ".attention")) before.push_back(rows.at(t->sm));
    REQUIRE(before.size() > 12);
    CHECK(std::count(before.begin(), before.end(), 16) == 12);
    CHECK(std::is_sorted(before.begin(), before.end()));
  }
  // A narrow model has 24 tiles of products: attention's first tasks find their SMs among those.
  ModelSpec narrow = model();
  narrow.hidden = 256, narrow.heads = 2, narrow.kv_heads = 1, narrow.head_dim = 48;
  const Program few = lowered(narrow, config);
  std::set<int> some;
  for (const Task* t : tasks_of(few, "L1.qkv")) some.insert(t->sm);
  CHECK(some.size() == 24);
  const auto attention = tasks_of(few, "L1.attention");
  for (std::size_t t = 0; t < attention.size(); ++t) CHECK((some.count(attention[t]->sm) == 1) == (t < 24));
}

TEST_CASE("sm_assignment as a map: named tiles where it says, the others in turn") {
  ScheduleConfig config;
  config.sm_assignment = SmAssignment::Explicit;
  config.explicit_sm = {{"L0.qkv.3", 17}, {"L0.qkv.4", 17}, {"L2.attention.9", 131}, {"embed.0", 5}};
  const Program p = lowered(model(), config);
  bool coalesced = false;
  for (const Task* t : tasks_of(p, "L0.qkv")) {
    if (t->row_begin == 48) coalesced = t->sm == 17 && t->row_end == 80;
    if (t->row_begin == 80) CHECK(t->sm == 5);
  }
  CHECK(coalesced);
  CHECK(tasks_of(p, "embed")[0]->sm == 5);
  const Task* tile = tasks_of(p, "L2.attention")[9];
  CHECK(tile->sm == 131);
  CHECK(tile->head == 1);  // 9 = split 1 * 8 heads + head 1
  CHECK(tile->split == 1);
}

TEST_CASE("sm_assignment measured: weight bytes in proportion to the weights") {
  ScheduleConfig config;
  config.gemv_n_tile = 8;
  config.sm_assignment = SmAssignment::Measured;
  LoweringTarget target = kTarget;
  for (int sm = 0; sm < 132; ++sm) target.sm_weight.push_back(sm < 66 ? 1.0 : 2.0);
  const Program p = lowered(model(), config, target);
  double slow = 0, fast = 0;
  for (const Task& t : p.tasks) (t.sm < 66 ? slow : fast) += static_cast<double>(t.ring_bytes);
  CHECK(fast / slow == doctest::Approx(2.0).epsilon(0.01));
  // Without weights, or with equal ones, it is load_balance.
  const Program plain = lowered(model(), config);
  target.sm_weight.assign(132, 0.125);
  CHECK(same_but_for(lowered(model(), config, target), plain, {}));
  config.sm_assignment = SmAssignment::LoadBalance;
  CHECK(same_but_for(lowered(model(), config), plain, {}));
}

TEST_CASE("pipelining_depth, inflight_chunks: the ring's bounds and nothing else") {
  const Program base = lowered(model(), {});
  ScheduleConfig config;
  config.pipelining_depth = 0;
  Program p = lowered(model(), config);
  CHECK(p.ring.depth == 0);
  CHECK(same_but_for(p, base, {"/ring/depth"}));
  config = {};
  config.kernel.inflight_chunks = 3;
  p = lowered(model(), config);
  CHECK(p.ring.inflight_chunks == 3);
  CHECK(same_but_for(p, base, {"/ring/inflight_chunks"}));
}

TEST_CASE("smem_bytes_per_block, chunk_bytes: the ring is whole chunks; without it weights load directly") {
  const Program base = lowered(model(), {});
  ScheduleConfig config;
  config.smem_bytes_per_block = 100 * 1024;
  Program p = lowered(model(), config);
  CHECK(p.ring.ring_bytes == 6 * 16384);
  CHECK(same_but_for(p, base, {"/ring/ring_bytes"}));
  config.kernel.chunk_bytes = 32768;
  p = lowered(model(), config);
  CHECK(p.ring.chunk_bytes == 32768);
  CHECK(p.ring.ring_bytes == 3 * 32768);
  CHECK(same_but_for(p, base, {"/ring/ring_bytes", "/ring/chunk_bytes"}));
  config.smem_bytes_per_block = 0;
  p = lowered(model(), config);
  CHECK(p.ring == Ring{});
  for (const Task& t : p.tasks) CHECK(t.ring_bytes == 0);
  for (const auto& stream : p.streams) CHECK(stream.empty());
}

TEST_CASE("kv_path ring: attention's cache rows are in the stream, in queue order, and nothing else changes") {
  const Program base = lowered(model(), {});
  ScheduleConfig config;
  config.kernel.kv_path = KvPath::Ring;
  Program p = lowered(model(), config);
  std::int64_t bytes = 0;
  for (std::size_t sm = 0; sm < p.queues.size(); ++sm) {
    std::vector<TaskId> expected;
    for (const TaskId id : p.queues[sm]) {
      const Opcode op = p.tasks[static_cast<std::size_t>(id)].op;
      if (op == Opcode::Gemv || op == Opcode::AttentionTile) expected.push_back(id);
    }
    CHECK(p.streams[sm] == expected);
  }
  for (const Task& t : p.tasks)
    if (t.op == Opcode::AttentionTile) bytes += t.ring_bytes;
  CHECK(bytes == std::int64_t{4} * 2 * 8 * 2048 * 64 * 4);  // layers, K and V, kv heads, positions, head_dim, fp32
  for (Task& t : p.tasks)
    if (t.op == Opcode::AttentionTile) t.ring_bytes = 0;
  CHECK(same_but_for(p, base, {"/streams"}));
  config.smem_bytes_per_block = 0;
  const auto none = lower(model(), config, kTarget, {});
  REQUIRE(!none);
  CHECK(none.error().data.value("rule", "") == "kv-ring-needs-ring");
}

TEST_CASE("threads_per_block: recorded for the launch, nothing else") {
  ScheduleConfig config;
  config.threads_per_block = 544;
  const Program p = lowered(model(), config);
  CHECK(p.threads_per_block == 544);
  CHECK(same_but_for(p, lowered(model(), {}), {"/threads_per_block"}));
}

TEST_CASE("page_allocation: none keeps every vector apart; the others reuse what is over") {
  ScheduleConfig config;
  config.page_allocation = PageAllocation::None;
  const Program none = lowered(model(), config);
  config.page_allocation = PageAllocation::Linear;
  const Program linear = lowered(model(), config);
  config.page_allocation = PageAllocation::GraphColor;
  const Program colored = lowered(model(), config);
  const auto storages = [](const Program& p) {
    return std::count_if(p.storages.begin(), p.storages.end(), [](const Storage& s) { return s.space == Space::Activation; });
  };
  // Per layer: q, partials, attn, act and two residuals; the embedding's residual and the argmax partials.
  CHECK(storages(none) == 4 * 6 + 2);
  CHECK(storages(linear) == 1);
  // The most that is alive at once: x (8 KB), q (8 KB) and partials (16 * 8 * 4 * 68 * 4 bytes), then x and attn; pages are cut to 256 bytes.
  CHECK(activation_bytes(linear) == 8192 + 8192 + 139264);
  // Partials and act take turns on one page; x, attn and the new x meet in the output projection, and each of them meets partials or act.
  CHECK(storages(colored) == 4);
  CHECK(activation_bytes(colored) == 139264 + 3 * 8192);
  // Only places change.
  const auto placeless = [](Program p) {
    p.storages.clear();
    for (Buffer& b : p.buffers) b.storage = 0, b.offset = 0;
    p.schedule_id.clear();
    return to_json(p);
  };
  CHECK(placeless(none) == placeless(linear));
  CHECK(placeless(none) == placeless(colored));
}

TEST_CASE("counters kv_head: attention of a head waits only for the tasks of its head") {
  ScheduleConfig config;
  config.kernel.counters = CounterGranularity::KvHead;
  for (const bool fused : {true, false}) {
    config.fusion.qkv_rope_append = fused;
    const Program p = lowered(model(), config);
    const std::string producer = fused ? "L1.qkv" : "L1.kv_append";
    for (const Task* t : tasks_of(p, "L1.attention")) CHECK(wait_names(p, *t) == std::vector<std::string>{producer + ".h" + std::to_string(t->head)});
    // By hand, llama-3.2-1b: packed q rows of head group h are [256 h, 256 h + 256), k rows 2048 + [64 h, 64 h + 64), v rows 512 later.
    for (const Task* t : tasks_of(p, "L1.qkv")) {
      const auto head_of = [](int row) { return row < 2048 ? row / 256 : (row - 2048) % 512 / 64; };
      CHECK(head_of(t->row_begin) == head_of(t->row_end - 1));
      CHECK(p.counters[static_cast<std::size_t>(t->signal)].name == "L1.qkv.h" + std::to_string(head_of(t->row_begin)));
    }
    // A combine of one head waits for the splits of that head; the projection after it for all.
    for (const Task* t : tasks_of(p, "L1.combine")) {
      CHECK(wait_names(p, *t) == std::vector<std::string>{"L1.attention.h" + std::to_string(t->row_begin)});
      CHECK(t->waits[0].target == 16);
    }
    CHECK(wait_names(p, *tasks_of(p, "L1.o_proj")[0]) == std::vector<std::string>{"L1.combine"});
  }
  // With the combine inside the projection every reader of attention needs all heads: one counter.
  config.fusion.combine_o = true;
  const Program p = lowered(model(), config);
  CHECK(wait_names(p, *tasks_of(p, "L1.o_proj")[0]) == std::vector<std::string>{"L1.attention"});
  // Vector granularity: one counter an instruction.
  for (const Counter& c : lowered(model(), {}).counters) CHECK(c.name.find(".h") == std::string::npos);
}

TEST_CASE("weight_layout: packed matrices are stored in whole eight-row units") {
  ModelSpec spec = model();
  spec.vocab = 4001;
  const Program packed = lowered(spec, {});
  ScheduleConfig config;
  config.kernel.gemv_path = GemvPath::Fma;
  config.kernel.weight_layout = WeightLayout::Row;
  const Program row = lowered(spec, config);
  const auto head_storage = [](const Program& p) {
    return p.storages[static_cast<std::size_t>(p.buffers[static_cast<std::size_t>(p.find_buffer("lm_head.w"))].storage)].bytes;
  };
  CHECK(head_storage(packed) == 4008 * 2048 * 2);
  CHECK(head_storage(row) == 4001 * 2048 * 2);
  CHECK(same_but_for(packed, row, {"/storages"}));
}

TEST_CASE("knobs that are compiled into the kernel change the id and nothing else") {
  const std::function<void(KernelKnobs&)> changes[] = {
      [](KernelKnobs& k) { k.gemv_path = GemvPath::Fma; },
      [](KernelKnobs& k) { k.publish = Publish::Flagged; },
      [](KernelKnobs& k) { k.cols_per_warp = 512; },
      [](KernelKnobs& k) { k.cpasync = true; },
      [](KernelKnobs& k) { k.cpa_stages = 2; },
      [](KernelKnobs& k) { k.cpa_cols = 256; },
  };
  const Program base = lowered(model(), {});
  std::set<std::string> ids{base.schedule_id};
  for (const auto& change : changes) {
    ScheduleConfig config;
    change(config.kernel);
    const Program p = lowered(model(), config);
    CHECK(ids.insert(p.schedule_id).second);
    CHECK(same_but_for(p, base, {}));
  }
}
