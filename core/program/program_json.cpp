#include "core/program/program_json.h"

#include "core/program/json_names.h"
#include "core/program/model_json.h"

namespace amk {
namespace {

using namespace program_json;

Json to_json(const Storage& s) { return {{"name", s.name}, {"space", name_of(kSpaces, s.space)}, {"bytes", s.bytes}}; }

Json to_json(const Counter& c) { return {{"name", c.name}, {"fan_in", c.fan_in}}; }

Json to_json(const Buffer& b) {
  Json json = {{"name", b.name},
               {"space", name_of(kSpaces, b.space)},
               {"dtype", name_of(kDTypes, b.dtype)},
               {"shape", b.shape},
               {"storage", b.storage},
               {"offset", b.offset},
               {"bytes", b.bytes},
               {"binding", nullptr}};
  if (b.space == Space::Weight) {
    const bool matrix = b.binding.matrix != Matrix::None;
    json["binding"] = {{"matrix", name_of(kMatrices, b.binding.matrix)},
                       {"vector", matrix ? Json(nullptr) : Json(name_of(kVectors, b.binding.kind))},
                       {"layer", b.binding.layer},
                       {"bias", b.binding.bias}};
    if (b.binding.scale) json["binding"]["scale"] = true;
  }
  return json;
}

Json fused_json(std::uint32_t fused) {
  Json names = Json::array();
  for (const auto& [flag, name] : kFused)
    if (fused & flag) names.push_back(name);
  return names;
}

Json to_json(const Instruction& in) {
  return {{"name", in.name},
          {"op", name_of(kOpcodes, in.op)},
          {"layer", in.layer},
          {"matrix", name_of(kMatrices, in.matrix)},
          {"fused", fused_json(in.fused)},
          {"tiles", in.tiles}};
}

// Regions and waits are the bulk of a program: lists of numbers, not objects.
Json to_json(const std::vector<Region>& regions) {
  Json json = Json::array();
  for (const Region& r : regions) json.push_back(Json::array({r.buffer, r.begin, r.end, r.pos_stride, r.pos_lo, r.pos_hi}));
  return json;
}

Json to_json(const Task& t) {
  Json waits = Json::array();
  for (const Wait& w : t.waits) waits.push_back(Json::array({w.counter, w.target}));
  return {{"op", name_of(kOpcodes, t.op)},
          {"layer", t.layer},
          {"instruction", t.instruction},
          {"matrix", name_of(kMatrices, t.matrix)},
          {"fused", fused_json(t.fused)},
          {"row_begin", t.row_begin},
          {"row_end", t.row_end},
          {"seq", t.seq},
          {"head", t.head},
          {"split", t.split},
          {"splits", t.splits},
          {"partial", t.partial},
          {"pos_lo", t.pos_lo},
          {"pos_hi", t.pos_hi},
          {"reads", to_json(t.reads)},
          {"writes", to_json(t.writes)},
          {"waits", std::move(waits)},
          {"signal", t.signal},
          {"sm", t.sm},
          {"queue_pos", t.queue_pos},
          {"ring_bytes", t.ring_bytes}};
}

template <class T>
Json list(const std::vector<T>& values) {
  Json json = Json::array();
  for (const T& value : values) json.push_back(to_json(value));
  return json;
}

}  // namespace

Json to_json(const Program& p) {
  return {{"version", p.version},
          {"model", model_to_json(p.model)},
          {"schedule_id", p.schedule_id},
          {"sm_count", p.sm_count},
          {"threads_per_block", p.threads_per_block},
          {"batch", p.batch},
          {"max_seq", p.max_seq},
          {"max_steps", p.max_steps},
          {"step_sync", name_of(kStepSyncs, p.step_sync)},
          {"ring",
           {{"ring_bytes", p.ring.ring_bytes},
            {"chunk_bytes", p.ring.chunk_bytes},
            {"inflight_chunks", p.ring.inflight_chunks},
            {"depth", p.ring.depth}}},
          {"attention", {{"kv_block", p.attention.kv_block}, {"splits", p.attention.splits}, {"split_step", p.attention.split_step}}},
          {"storages", list(p.storages)},
          {"buffers", list(p.buffers)},
          {"counters", list(p.counters)},
          {"instructions", list(p.instructions)},
          {"tasks", list(p.tasks)},
          {"queues", p.queues},
          {"streams", p.streams}};
}

}  // namespace amk
