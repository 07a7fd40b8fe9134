// Byte hazards: reads, overwriting, sharing of pages, positions. Every expectation follows from the picture in the comment.
#include <doctest/doctest.h>

#include "core/base/json.h"
#include "core/program/validator.h"
#include "tests/support/programs/program_builder.h"
#include "tests/unit/validator/rules.h"

using namespace amk;
using amk::testing::ProgramBuilder;
using test::rule_of;

namespace {

Task& task(Program& p, TaskId id) { return p.tasks[static_cast<std::size_t>(id)]; }

}  // namespace

TEST_CASE("reads must be covered byte for byte") {
  ProgramBuilder b(1, 8);
  const BufferId x = b.buffer("x", Space::Activation, 8), out = b.buffer("out", Space::Output, 1);
  const TaskId writer = b.task(0, {{}, {b.part(x, 0, 4), b.part(x, 4, 4)}});
  const TaskId reader = b.task(0, {{b.part(x, 2, 6)}, {b.all(out)}});
  const Program good = b.finish();
  CHECK(rule_of(good) == "valid");
  Program p = good;
  task(p, writer).writes[1].begin += 4;  // element 4 is now nobody's
  CHECK(rule_of(p) == "raw");
  CHECK(validate(p, Footprints::Trust).rejection->witness.at("bytes") == Json::array({16, 20}));
  p = good;
  task(p, writer).writes[1].end -= 4;  // element 7
  CHECK(rule_of(p) == "raw");
  p = good;
  task(p, writer).writes[0].begin += 8;  // elements 0 and 1, which nobody reads
  CHECK(rule_of(p) == "valid");
  p = good;
  task(p, reader).reads[0].end += 4;
  CHECK(rule_of(p) == "out-of-range");
  p = good;
  task(p, reader).reads[0].begin += 2;
  CHECK(rule_of(p) == "misaligned");
}

TEST_CASE("two writers of one byte in a step are refused, ordered or not") {
  ProgramBuilder b(2, 8);
  const BufferId out = b.buffer("out", Space::Output, 8);
  const CounterId c = b.counter("c");
  b.task(0, {{}, {b.part(out, 0, 5)}, {}, c});
  b.task(1, {{}, {b.part(out, 4, 4)}, {c}});
  Program p = b.finish();
  CHECK(rule_of(p) == "double-write");
  CHECK(validate(p, Footprints::Trust).rejection->witness.at("bytes") == Json::array({16, 20}));
  p.tasks[0].writes[0].end = 16;
  CHECK(rule_of(p) == "valid");
}

TEST_CASE("writers at disjoint positions share bytes; a gap or an overlap of positions does not pass") {
  ProgramBuilder b(2, 8);
  const BufferId out = b.buffer("out", Space::Output, 4);
  b.task(0, {{}, {b.part(out, 0, 4, 0, 5)}});
  b.task(1, {{}, {b.part(out, 0, 4, 5)}});
  Program p = b.finish();
  CHECK(rule_of(p) == "valid");
  p.tasks[1].writes[0].pos_lo = 4;
  CHECK(rule_of(p) == "double-write");
  p.tasks[1].writes[0].pos_lo = 6;
  CHECK(rule_of(p) == "unwritten-output");
  CHECK(validate(p, Footprints::Trust).rejection->witness.at("positions") == Json::array({5, 6}));
}

TEST_CASE("outputs must be written whole") {
  ProgramBuilder b(1, 8);
  const BufferId out = b.buffer("out", Space::Output, 8);
  b.task(0, {{}, {b.part(out, 0, 3), b.part(out, 4, 4)}});
  const Program p = b.finish();
  CHECK(rule_of(p) == "unwritten-output");
  CHECK(validate(p, Footprints::Trust).rejection->witness.at("bytes") == Json::array({12, 16}));
}

// x and y share one page: w writes x, r reads it, v writes y over it, s reads y.
struct Page {
  ProgramBuilder b{4, 8};
  StorageId page = b.storage("page", 64);
  BufferId x = b.buffer("x", Space::Activation, 8, page), y = b.buffer("y", Space::Activation, 8, page);
  BufferId out = b.buffer("out", Space::Output, 2);
  CounterId written = b.counter("written"), read = b.counter("read"), rewritten = b.counter("rewritten");
  TaskId w = b.task(0, {{}, {b.all(x)}, {}, written});
  TaskId r = b.task(1, {{b.all(x)}, {b.part(out, 0, 1)}, {written}, read});
  TaskId v = b.task(2, {{}, {b.all(y)}, {read}, rewritten});
  TaskId s = b.task(3, {{b.all(y)}, {b.part(out, 1, 1)}, {rewritten}});
  Program program = b.finish();
};

TEST_CASE("a page may be used again once its readers are done") { CHECK(rule_of(Page().program) == "valid"); }

TEST_CASE("overwriting before the reader is done is war, before the writer is done waw") {
  Page page;
  Program p = page.program;
  task(p, page.v).waits[0].counter = page.written;  // waits for w, not for r
  p.tasks[1].signal = kNone;
  p.counters[static_cast<std::size_t>(page.read)].fan_in = 0;
  task(p, page.v).waits[0].target = 1;
  CHECK(rule_of(p) == "war");
  const Json w = validate(p, Footprints::Trust).rejection->witness;
  CHECK(w.at("task").get<std::string>() != w.at("other").get<std::string>());
  task(p, page.r).reads.clear();  // nobody reads x: only the two writes meet, still unordered if v waits for nothing
  task(p, page.v).waits.clear();
  CHECK(rule_of(p) == "waw");
}

TEST_CASE("a read that comes for certain after its page was given away is page-alias") {
  Page page;
  Program p = page.program;
  // r moves behind s: v waits for w alone, r waits for v.
  task(p, page.v).waits = {{page.written, 1}};
  task(p, page.r).waits = {{page.rewritten, 1}};
  CHECK(rule_of(p) == "page-alias");
}

TEST_CASE("pages that overlap in part: only the shared bytes matter") {
  for (const bool overlap : {false, true}) {
    ProgramBuilder b(2, 8);
    const StorageId page = b.storage("page", 128);
    const BufferId x = b.buffer("x", Space::Activation, 8, page, 0), y = b.buffer("y", Space::Activation, 8, page, 16);
    const BufferId out = b.buffer("out", Space::Output, 2);
    // x occupies elements [0, 8) of the page, y [4, 12). One SM uses x's first half (or one element more), the other y, with no order between them.
    const std::int64_t n = overlap ? 5 : 4;
    b.task(0, {{}, {b.part(x, 0, n)}});
    b.task(0, {{b.part(x, 0, n)}, {b.part(out, 0, 1)}});
    b.task(1, {{}, {b.all(y)}});
    b.task(1, {{b.all(y)}, {b.part(out, 1, 1)}});
    const std::string rule = rule_of(b.finish());
    CHECK((rule == "valid") == !overlap);
    if (overlap) CHECK((rule == "waw" || rule == "war"));
  }
}

TEST_CASE("in place: element by element only, and only with the same bytes") {
  const auto make = [](Opcode op, std::uint32_t fused, std::int64_t shift) {
    ProgramBuilder b(2, 8);
    const StorageId page = b.storage("page", 128);
    const BufferId x = b.buffer("x", Space::Activation, 8, page), y = b.buffer("y", Space::Activation, 8, page, shift);
    const BufferId out = b.buffer("out", Space::Output, 2);
    const CounterId written = b.counter("written"), added = b.counter("added");
    b.task(0, {{}, {b.all(x)}, {}, written});
    // Both SMs add to their own half, in place, at the same time.
    for (int i = 0; i < 2; ++i) b.task(i, {{b.part(x, 4 * i, 4)}, {b.part(y, 4 * i, 4)}, {written}, added, op, 0, fused});
    for (int i = 0; i < 2; ++i) b.task(i, {{b.all(y)}, {b.part(out, i, 1)}, {added}});
    return rule_of(b.finish());
  };
  CHECK(make(Opcode::Add, 0, 0) == "valid");
  CHECK(make(Opcode::Gemv, kFusedResidualAdd, 0) == "valid");
  CHECK(make(Opcode::RmsNorm, 0, 0) == "page-alias");
  CHECK(make(Opcode::Gemv, kFusedNorm, 0) == "page-alias");
  CHECK(make(Opcode::Add, 0, 16) != "valid");
  CHECK(make(Opcode::Add, 0, 32) == "valid");  // page of 32 elements: y is elsewhere
}

TEST_CASE("in place needs the same owner: another SM's slice may still be read") {
  // SM 0 adds to the whole of x in place while SM 1 still reads x.
  ProgramBuilder b(2, 8);
  const StorageId page = b.storage("page", 32);
  const BufferId x = b.buffer("x", Space::Activation, 8, page), y = b.buffer("y", Space::Activation, 8, page);
  const BufferId out = b.buffer("out", Space::Output, 2);
  const CounterId written = b.counter("written");
  b.task(0, {{}, {b.all(x)}, {}, written});
  b.task(0, {{b.all(x)}, {b.all(y)}, {}, kNone, Opcode::Add});
  b.task(0, {{b.all(y)}, {b.part(out, 0, 1)}});
  b.task(1, {{b.all(x)}, {b.part(out, 1, 1)}, {written}});
  CHECK(rule_of(b.finish()) == "war");
}

TEST_CASE("storages of weights, caches, inputs and outputs are never shared") {
  ProgramBuilder b(1, 8);
  const StorageId s = b.storage("s", 64, Space::Output);
  const BufferId a = b.buffer("a", Space::Output, 8, s, 0), c = b.buffer("c", Space::Output, 8, s, 32);
  b.task(0, {{}, {b.all(a), b.all(c)}});
  CHECK(rule_of(b.finish()) == "page-alias");
}

// k: two heads. SM 0 appends, SM 1 attends.
struct Cache {
  ProgramBuilder b{2, 8};
  BufferId k = b.kv("k", 2, 4);
  BufferId out = b.buffer("out", Space::Output, 2);
  CounterId appended = b.counter("appended");
  TaskId append = b.task(0, {{}, {b.row(k, 0, 0, 4), b.row(k, 1, 0, 4)}, {}, appended, Opcode::KvAppend});
  TaskId attend = b.task(1, {{b.head(k, 0), b.head(k, 1)}, {b.all(out)}, {appended}, kNone, Opcode::AttentionTile});
  Program program = b.finish();
};

TEST_CASE("an append before the whole-head read is valid; unordered it is raw") {
  Cache c;
  CHECK(rule_of(c.program) == "valid");
  task(c.program, c.attend).waits.clear();
  CHECK(rule_of(c.program) == "raw");
}

TEST_CASE("an append stays in the launch position's row of one head") {
  const Cache c;
  const auto with = [&](auto change) {
    Program p = c.program;
    change(task(p, c.append).writes[0]);
    return rule_of(p);
  };
  CHECK(with([](Region& r) { r.pos_stride = 32; }) == "length");  // every second row
  CHECK(with([](Region& r) { r.pos_stride = 0; }) == "length");   // row 0 always
  CHECK(with([](Region& r) { r.pos_stride = 12; }) == "length");
  CHECK(with([](Region& r) { r.pos_stride = -16; }) == "length");
  CHECK(with([](Region& r) { r.begin += 16, r.end += 16; }) == "length");  // row p + 1
  CHECK(with([](Region& r) { r.end += 4; }) == "length");                  // into row p + 1
  CHECK(with([](Region& r) { r.end -= 4; }) == "raw");                     // element 3 of the row is read
}

TEST_CASE("rows that no step writes") {
  Cache c;
  task(c.program, c.append).writes.pop_back();  // head 1 is never appended
  CHECK(rule_of(c.program) == "raw");
  task(c.program, c.attend).reads.pop_back();  // nor read in this program: the cache would still be left with holes
  CHECK(rule_of(c.program) == "unwritten-output");
}

TEST_CASE("an append that sleeps at some positions leaves holes") {
  Cache c;
  task(c.program, c.append).pos_lo = 3;
  CHECK(rule_of(c.program) == "length");
  CHECK(validate(c.program, Footprints::Trust).rejection->witness.at("positions") == Json::array({0, 3}));
  // The reader sleeps at the same positions, but at position 3 it reads row 1.
  task(c.program, c.attend).pos_lo = 3;
  task(c.program, c.attend).writes.clear();
  c.b.program.buffers.pop_back();
  Program p = c.program;
  p.buffers[static_cast<std::size_t>(c.out)].space = Space::Activation;
  p.storages[static_cast<std::size_t>(p.buffers[static_cast<std::size_t>(c.out)].storage)].space = Space::Activation;
  CHECK(rule_of(p) == "unwritten-output");
}

TEST_CASE("a read of earlier blocks alone does not meet this step's append") {
  Cache c;
  Program p = c.program;
  Task& t = task(p, c.attend);
  // Rows [0, 4) of both heads, from position 4 on; no wait is needed for rows of earlier steps.
  t.reads[0].end = t.reads[0].begin + 4 * 16;
  t.reads[1].end = t.reads[1].begin + 4 * 16;
  t.reads[0].pos_lo = t.reads[1].pos_lo = 4;
  t.waits.clear();
  CHECK(rule_of(p) == "valid");
  t.reads[1].pos_lo = 3;  // at position 3 it reads row 3, which this step appends
  CHECK(rule_of(p) == "raw");
}

TEST_CASE("a KV cache shorter than the promised positions") {
  Cache c;
  c.program.max_seq = 9;
  CHECK(rule_of(c.program) == "length");
}

TEST_CASE("a guarded partial is read only while its split is awake") {
  ProgramBuilder b(2, 8);
  const BufferId part = b.buffer("partials", Space::Activation, 8), out = b.buffer("out", Space::Output, 4);
  const CounterId c = b.counter("c");
  b.task(0, {{}, {b.part(part, 0, 4)}, {}, c});
  ProgramBuilder::Parts late{{}, {b.part(part, 4, 4)}, {}, c};
  late.pos_lo = 4;
  b.task(0, std::move(late));
  const TaskId combine = b.task(1, {{b.part(part, 0, 4), b.part(part, 4, 4, 4)}, {b.all(out)}, {c}});
  Program p = b.finish();
  CHECK(rule_of(p) == "valid");
  task(p, combine).reads[1].pos_lo = 3;
  CHECK(rule_of(p) == "length");
  CHECK(validate(p, Footprints::Trust).rejection->witness.at("positions") == Json::array({3, 4}));
  task(p, combine).reads[1].pos_lo = 5;
  CHECK(rule_of(p) == "valid");
}

TEST_CASE("page reuse under guards: hazards count only at positions that meet") {
  // x lives on the page at positions [0, 4), y at [4, 8) or from 3 on; no order between them.
  for (const int from : {4, 3}) {
    ProgramBuilder b(2, 8);
    const StorageId page = b.storage("page", 16);
    const BufferId x = b.buffer("x", Space::Activation, 4, page), y = b.buffer("y", Space::Activation, 4, page);
    b.task(0, {{}, {b.part(x, 0, 4, 0, 4)}});
    b.task(0, {{b.part(x, 0, 4, 0, 4)}, {}});
    b.task(1, {{}, {b.part(y, 0, 4, from)}});
    b.task(1, {{b.part(y, 0, 4, from)}, {}});
    CHECK((rule_of(b.finish()) == "valid") == (from == 4));
  }
}

TEST_CASE("a guarded overwrite hides nothing at other positions") {
  // x is overwritten by y at positions [0, 4) in good order; z comes over both and is ordered after y's reader alone. At position 5 x's reader and z
  // meet.
  ProgramBuilder b(4, 8);
  const StorageId page = b.storage("page", 16);
  const BufferId x = b.buffer("x", Space::Activation, 4, page), y = b.buffer("y", Space::Activation, 4, page),
                 z = b.buffer("z", Space::Activation, 4, page);
  const CounterId wx = b.counter("wx"), wy = b.counter("wy");
  b.task(0, {{}, {b.all(x)}, {}, wx});
  b.task(1, {{b.part(x, 0, 4, 4)}, {}, {wx}});  // reads x at positions [4, 8), nobody waits for it
  b.task(0, {{}, {b.part(y, 0, 4, 0, 4)}, {}, wy});
  b.task(2, {{}, {b.all(z)}, {wy}});
  CHECK(rule_of(b.finish()) == "war");
}

TEST_CASE("weights and constants cannot be written, nor can an input within a launch") {
  for (const Space space : {Space::Weight, Space::Const, Space::Input}) {
    ProgramBuilder b(1, 8);
    const BufferId x = b.buffer("x", space, 4);
    b.task(0, {{}, {b.all(x)}});
    CHECK(rule_of(b.finish()) == "malformed");
  }
}

TEST_CASE("a strided read of a constant table stays inside at every position") {
  ProgramBuilder b(1, 8);
  const BufferId table = b.buffer("rope", Space::Const, 32);
  b.task(0, {{{table, 0, 16, 16, 0, kAllPositions}}, {}});
  Program p = b.finish();
  CHECK(rule_of(p) == "valid");
  p.tasks[0].reads[0].pos_stride = 20;
  CHECK(rule_of(p) == "out-of-range");
  p.tasks[0].reads[0].pos_stride = std::numeric_limits<std::int64_t>::max() - 3;
  CHECK(rule_of(p) == "out-of-range");
  p.tasks[0].reads[0].pos_stride = -4;
  CHECK(rule_of(p) == "out-of-range");
}

TEST_CASE("an input fed back to the next step: read before it is replaced, replaced at every position") {
  const auto make = [](bool same_task, bool guarded) {
    ProgramBuilder b(1, 8);
    b.program.step_sync = StepSync::Persistent;
    const BufferId token = b.buffer("token", Space::Input, 1), out = b.buffer("out", Space::Output, 1);
    if (!same_task) b.task(0, {{b.all(token)}, {b.all(out)}});
    ProgramBuilder::Parts last{{}, {b.part(token, 0, 1, guarded ? 1 : 0)}};
    if (same_task) last.reads.push_back(b.all(token)), last.writes.push_back(b.all(out));
    b.task(0, std::move(last));
    return rule_of(b.finish());
  };
  CHECK(make(false, false) == "valid");
  CHECK(make(true, false) == "war");
  CHECK(make(false, true) == "unwritten-output");
}

TEST_CASE("steps of one launch: what the next step does must wait for this one") {
  // SM 0 writes x and the output; SM 1 reads x. With the reader's signal awaited at the start of the next step it is valid, without it is not.
  for (const bool closed : {true, false}) {
    ProgramBuilder b(2, 8);
    b.program.step_sync = StepSync::Persistent;
    const BufferId x = b.buffer("x", Space::Activation, 1), out = b.buffer("out", Space::Output, 1);
    const CounterId written = b.counter("written"), read = b.counter("read");
    const TaskId first = b.task(0, {{}, {b.all(x)}, {}, written});
    b.task(1, {{b.all(x)}, {b.all(out)}, {written}, read});
    if (closed) task(b.program, first).waits.push_back({read, 0});  // of the step before
    CHECK(rule_of(b.finish()) == (closed ? "valid" : "war"));
  }
}

TEST_CASE("a producer that may run a step ahead makes its counter worthless") {
  // Both SMs signal c; the waiter on SM 2 needs both. Nothing stops SM 0 from signalling for the next step before SM 1 has for this one.
  ProgramBuilder b(3, 8);
  b.program.step_sync = StepSync::Persistent;
  const CounterId c = b.counter("c"), d = b.counter("d");
  b.task(0, {{}, {}, {}, c});
  b.task(1, {{}, {}, {}, c});
  b.task(2, {{}, {}, {c}, d});
  Program p = b.finish();
  CHECK(rule_of(p) == "stale-epoch");
  for (const TaskId id : {0, 1}) task(p, id).waits.push_back({d, 0});
  CHECK(rule_of(p) == "valid");
}
