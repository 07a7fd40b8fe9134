#include "core/program/json_reader.h"
#include "core/program/model_json.h"
#include "core/program/program_json.h"

namespace amk {
namespace {

using namespace program_json;

constexpr std::int64_t kMaxItems = 4'000'000;    // tasks, buffers, counters …
constexpr std::int64_t kMaxRegions = 1'000'000;  // of one task
constexpr std::int64_t kMaxSms = 4096;
constexpr std::int64_t kMaxRank = 8;

std::int64_t last(std::size_t count) { return static_cast<std::int64_t>(count) - 1; }

Status read_storage(const Json& json, const Place& place, Storage& s) {
  ObjectReader in(json, place);
  AMK_CHECK(in.text("name", s.name));
  AMK_CHECK(in.name("space", kSpaces, s.space));
  AMK_CHECK(in.integer("bytes", s.bytes, 0, kMaxBytes));
  return in.done();
}

Status read_binding(const Json& json, const Place& place, const ModelSpec& model, WeightBinding& b) {
  ObjectReader in(json, place);
  AMK_CHECK(in.name("matrix", kMatrices, b.matrix));
  AMK_TRY(vector, in.value("vector"));
  if (b.matrix == Matrix::None) {
    AMK_CHECK(ObjectReader::read_name(*vector, {&place, "vector"}, kVectors, b.kind));
  } else if (!vector->is_null()) {
    return bad_field(Place{&place, "vector"}.text(), *vector, "null beside a matrix");
  }
  AMK_CHECK(in.integer("layer", b.layer, 0, model.layers - 1));
  AMK_CHECK(in.boolean("bias", b.bias));
  if (b.bias && b.matrix == Matrix::None) return bad_field(Place{&place, "bias"}.text(), true, "false beside a vector");
  if (!in.has("scale")) return in.done();
  AMK_CHECK(in.boolean("scale", b.scale));
  if (!b.scale || b.bias || b.matrix == Matrix::None)  // absent when false, so that equal programs are equal text
    return bad_field(Place{&place, "scale"}.text(), b.scale, "true beside a matrix whose bias is false, or absent");
  return in.done();
}

Status read_buffer(const Json& json, const Place& place, const Program& p, Buffer& b) {
  ObjectReader in(json, place);
  AMK_CHECK(in.text("name", b.name));
  AMK_CHECK(in.name("space", kSpaces, b.space));
  AMK_CHECK(in.name("dtype", kDTypes, b.dtype));
  AMK_TRY(shape, in.value("shape"));
  std::int64_t bytes = dtype_bytes(b.dtype);
  const auto read_extent = [&](const Json& element, const Place& at) -> Status {
    std::int64_t n = 0;
    AMK_CHECK(ObjectReader::read_integer(element, at, n, 1, kMaxBytes / bytes));
    bytes *= n;
    b.shape.push_back(n);
    return {};
  };
  AMK_CHECK(read_array(*shape, {&place, "shape"}, kMaxRank, read_extent));
  AMK_CHECK(in.integer("storage", b.storage, 0, last(p.storages.size())));
  AMK_CHECK(in.integer("offset", b.offset, 0, kMaxBytes));
  AMK_CHECK(in.integer("bytes", b.bytes, bytes, bytes));
  AMK_TRY(binding, in.value("binding"));
  if (b.space == Space::Weight) {
    AMK_CHECK(read_binding(*binding, {&place, "binding"}, p.model, b.binding));
  } else if (!binding->is_null()) {
    return bad_field(Place{&place, "binding"}.text(), *binding, "null except for weights");
  }
  return in.done();
}

Status read_fused(const Json& json, const Place& place, std::uint32_t& fused) {
  return read_array(json, place, static_cast<std::int64_t>(kFused.size()), [&](const Json& element, const Place& at) -> Status {
    FusedFlag flag{};
    AMK_CHECK(ObjectReader::read_name(element, at, kFused, flag));
    // Ascending, so that equal sets are equal text.
    if (fused >= flag) return bad_field(at.text(), element, "each flag once, in the order of the schema");
    fused |= flag;
    return {};
  });
}

Status read_instruction(const Json& json, const Place& place, const Program& p, Instruction& i) {
  ObjectReader in(json, place);
  AMK_CHECK(in.text("name", i.name));
  AMK_CHECK(in.name("op", kOpcodes, i.op));
  AMK_CHECK(in.integer("layer", i.layer, -1, p.model.layers - 1));
  AMK_CHECK(in.name("matrix", kMatrices, i.matrix));
  AMK_TRY(fused, in.value("fused"));
  AMK_CHECK(read_fused(*fused, {&place, "fused"}, i.fused));
  AMK_CHECK(in.integer("tiles", i.tiles, 1, kMaxInt32));
  return in.done();
}

// A fixed-length list of integers, each within its bounds.
struct Bounds {
  std::int64_t low, high;
};
template <std::size_t N>
Status read_numbers(const Json& json, const Place& place, const Bounds (&bounds)[N], std::int64_t (&out)[N]) {
  if (!json.is_array() || json.size() != N) return bad_field(place.text(), json, "a list of " + std::to_string(N) + " integers");
  for (std::size_t i = 0; i < N; ++i)
    AMK_CHECK(ObjectReader::read_integer(json[i], Place{&place, {}, static_cast<std::int64_t>(i)}, out[i], bounds[i].low, bounds[i].high));
  return {};
}

Status read_regions(const Json& json, const Place& place, const Program& p, std::vector<Region>& regions) {
  const Bounds bounds[6] = {{0, last(p.buffers.size())}, {0, kMaxBytes}, {0, kMaxBytes}, {0, kMaxStride}, {0, kMaxInt32}, {0, kMaxInt32}};
  return read_array(json, place, kMaxRegions, [&](const Json& element, const Place& at) -> Status {
    std::int64_t v[6];
    AMK_CHECK(read_numbers(element, at, bounds, v));
    regions.push_back({static_cast<BufferId>(v[0]), v[1], v[2], v[3], static_cast<std::int32_t>(v[4]), static_cast<std::int32_t>(v[5])});
    return {};
  });
}

Status read_task(const Json& json, const Place& place, const Program& p, Task& t) {
  ObjectReader in(json, place);
  AMK_CHECK(in.name("op", kOpcodes, t.op));
  AMK_CHECK(in.integer("layer", t.layer, -1, p.model.layers - 1));
  AMK_CHECK(in.integer("instruction", t.instruction, 0, last(p.instructions.size())));
  AMK_CHECK(in.name("matrix", kMatrices, t.matrix));
  AMK_TRY(fused, in.value("fused"));
  AMK_CHECK(read_fused(*fused, {&place, "fused"}, t.fused));
  for (const auto& [key, member] : {std::pair{"row_begin", &Task::row_begin},
                                    {"row_end", &Task::row_end},
                                    {"seq", &Task::seq},
                                    {"head", &Task::head},
                                    {"split", &Task::split},
                                    {"splits", &Task::splits},
                                    {"partial", &Task::partial},
                                    {"pos_lo", &Task::pos_lo},
                                    {"pos_hi", &Task::pos_hi},
                                    {"queue_pos", &Task::queue_pos}})
    AMK_CHECK(in.integer(key, t.*member, 0, kMaxInt32));
  AMK_TRY(reads, in.value("reads"));
  AMK_CHECK(read_regions(*reads, {&place, "reads"}, p, t.reads));
  AMK_TRY(writes, in.value("writes"));
  AMK_CHECK(read_regions(*writes, {&place, "writes"}, p, t.writes));
  AMK_TRY(waits, in.value("waits"));
  const Bounds bounds[2] = {{0, last(p.counters.size())}, {0, kMaxInt32}};
  const auto read_wait = [&](const Json& element, const Place& at) -> Status {
    std::int64_t v[2];
    AMK_CHECK(read_numbers(element, at, bounds, v));
    t.waits.push_back({static_cast<CounterId>(v[0]), static_cast<std::int32_t>(v[1])});
    return {};
  };
  AMK_CHECK(read_array(*waits, {&place, "waits"}, kMaxRegions, read_wait));
  AMK_CHECK(in.integer("signal", t.signal, kNone, last(p.counters.size())));
  AMK_CHECK(in.integer("sm", t.sm, 0, p.sm_count - 1));
  AMK_CHECK(in.integer("ring_bytes", t.ring_bytes, 0, kMaxBytes));
  return in.done();
}

Status read_counter(const Json& json, const Place& place, Counter& c) {
  ObjectReader in(json, place);
  AMK_CHECK(in.text("name", c.name));
  AMK_CHECK(in.integer("fan_in", c.fan_in, 0, kMaxInt32));
  return in.done();
}

Status read_lists(const Json& json, const Place& place, const Program& p, std::vector<std::vector<TaskId>>& lists) {
  AMK_CHECK(read_array(json, place, p.sm_count, [&](const Json& list, const Place& at) -> Status {
    lists.emplace_back();
    return read_array(list, at, kMaxItems, [&](const Json& element, const Place& inner) {
      return ObjectReader::read_integer(element, inner, lists.back().emplace_back(), 0, last(p.tasks.size()));
    });
  }));
  if (lists.size() != static_cast<std::size_t>(p.sm_count))
    return bad_field(place.text(), json.size(), "one list for each of " + std::to_string(p.sm_count) + " SMs");
  return {};
}

// Reads the array under `key` into `items`, element by element.
template <class T, class Read>
Status read_list(ObjectReader& in, std::string_view key, std::vector<T>& items, Read read) {
  AMK_TRY(json, in.value(key));
  return read_array(*json, {&in.place(), key}, kMaxItems,
                    [&](const Json& element, const Place& at) { return read(element, at, items.emplace_back()); });
}

Result<Program> read_program(const Json& json) {
  Program p;
  const Place root{nullptr, "program"};
  ObjectReader in(json, root);
  // The version first: another version may have other keys.
  AMK_CHECK(in.integer("version", p.version, kProgramVersion, kProgramVersion));
  AMK_TRY(model, in.value("model"));
  AMK_TRY(spec, model_from_json(*model, {&root, "model"}));
  p.model = std::move(spec);
  AMK_CHECK(in.text("schedule_id", p.schedule_id));
  AMK_CHECK(in.integer("sm_count", p.sm_count, 1, kMaxSms));
  AMK_CHECK(in.integer("threads_per_block", p.threads_per_block, 1, 1024));
  AMK_CHECK(in.integer("batch", p.batch, 1, kMaxBatch));
  AMK_CHECK(in.integer("max_seq", p.max_seq, 1, kMaxPosition));
  AMK_CHECK(in.integer("max_steps", p.max_steps, 0, std::numeric_limits<std::int64_t>::max()));
  AMK_CHECK(in.name("step_sync", kStepSyncs, p.step_sync));
  AMK_TRY(ring, in.value("ring"));
  ObjectReader ring_in(*ring, {&root, "ring"});
  AMK_CHECK(ring_in.integer("ring_bytes", p.ring.ring_bytes, 0, kMaxBytes));
  AMK_CHECK(ring_in.integer("chunk_bytes", p.ring.chunk_bytes, 0, kMaxBytes));
  AMK_CHECK(ring_in.integer("inflight_chunks", p.ring.inflight_chunks, 0, kMaxInt32));
  AMK_CHECK(ring_in.integer("depth", p.ring.depth, 0, kMaxInt32));
  AMK_CHECK(ring_in.done());
  AMK_TRY(attention, in.value("attention"));
  ObjectReader attention_in(*attention, {&root, "attention"});
  AMK_CHECK(attention_in.integer("kv_block", p.attention.kv_block, 1, kMaxPosition));
  AMK_CHECK(attention_in.integer("splits", p.attention.splits, 1, kMaxPosition));
  AMK_CHECK(attention_in.integer("split_step", p.attention.split_step, 1, kMaxPosition));
  AMK_CHECK(attention_in.done());
  // In the order in which ids refer to each other.
  AMK_CHECK(read_list(in, "storages", p.storages, read_storage));
  AMK_CHECK(read_list(in, "buffers", p.buffers, [&](const Json& j, const Place& at, Buffer& b) { return read_buffer(j, at, p, b); }));
  AMK_CHECK(read_list(in, "counters", p.counters, read_counter));
  AMK_CHECK(
      read_list(in, "instructions", p.instructions, [&](const Json& j, const Place& at, Instruction& i) { return read_instruction(j, at, p, i); }));
  AMK_CHECK(read_list(in, "tasks", p.tasks, [&](const Json& j, const Place& at, Task& t) { return read_task(j, at, p, t); }));
  AMK_TRY(queues, in.value("queues"));
  AMK_CHECK(read_lists(*queues, {&root, "queues"}, p, p.queues));
  AMK_TRY(streams, in.value("streams"));
  AMK_CHECK(read_lists(*streams, {&root, "streams"}, p, p.streams));
  AMK_CHECK(in.done());
  return p;
}

}  // namespace

Result<Program> program_from_json(const Json& json) { return read_program(json); }

}  // namespace amk
