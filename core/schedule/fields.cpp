#include "core/schedule/fields.h"

#include <algorithm>
#include <cmath>

namespace amk {
namespace {

std::vector<std::int64_t> multiples(std::int64_t low, std::int64_t high, std::int64_t step) {
  std::vector<std::int64_t> values;
  for (std::int64_t v = low; v <= high; v += step) values.push_back(v);
  return values;
}

Field range(std::string path, std::int64_t low, std::int64_t high, std::int64_t step, std::vector<std::int64_t> choices, std::string unit,
            std::string meaning) {
  Field f;
  f.path = std::move(path);
  f.low = low;
  f.high = high;
  f.step = step;
  f.choices = std::move(choices);
  f.unit = std::move(unit);
  f.meaning = std::move(meaning);
  return f;
}

Field enumerated(std::string path, std::vector<std::int64_t> accepted, std::string unit, std::string meaning) {
  Field f;
  f.path = std::move(path);
  f.accepted = f.choices = std::move(accepted);
  f.unit = std::move(unit);
  f.meaning = std::move(meaning);
  return f;
}

Field boolean(std::string path, std::string meaning) {
  Field f;
  f.path = std::move(path);
  f.type = FieldType::Boolean;
  f.kind = KnobKind::Boolean;
  f.choices = {0, 1};
  f.meaning = std::move(meaning);
  return f;
}

Field named(std::string path, std::vector<std::string> names, std::string meaning) {
  Field f;
  f.path = std::move(path);
  f.type = FieldType::Name;
  f.kind = KnobKind::Categorical;
  f.names = std::move(names);
  f.choices = multiples(0, static_cast<std::int64_t>(f.names.size()) - 1, 1);
  f.meaning = std::move(meaning);
  return f;
}

// Binds a record to its member: `get` and `set` are plain functions made from a path of members.
template <auto... Members>
Field bind(Field f) {
  f.get = [](const ScheduleConfig& c) { return static_cast<std::int64_t>((c.*....*Members)); };
  f.set = [](ScheduleConfig& c, std::int64_t v) {
    auto& member = (c.*....*Members);
    member = static_cast<std::remove_reference_t<decltype(member)>>(v);
  };
  return f;
}

template <auto Member>
Field bind_kernel(Field f) {
  return bind<&ScheduleConfig::kernel, Member>(std::move(f));
}

using C = ScheduleConfig;
using K = KernelKnobs;

std::vector<Field> make_fields() {
  std::vector<Field> f;
  f.push_back(bind<&C::gemv_n_tile>(
      range("tiling.gemv.N_tile", 8, 512, 8, {8, 16, 32, 64, 128, 256, 512}, "rows",
            "output rows of one tile: the granularity at which work is balanced over SMs; neighbouring tiles on one SM are one task")));
  f.push_back(bind<&C::attention_kv_block>(enumerated("tiling.attention.kv_block", {64, 128, 256, 512}, "positions",
                                                      "KV positions of one attention block; smaller blocks spread a context over more SMs")));
  Field splits = enumerated("tiling.attention.max_splits", {0, 2, 4, 8}, "splits",
                            "most parts of a head's positions, every one of which O has to merge; 0: as many as one sequence has SMs for");
  splits.choices = {0};  // it pays for several sequences at positions that no judgement times (docs/lab/megakernel.md, 28)
  splits.silent_default = true;
  f.push_back(bind<&C::attention_max_splits>(std::move(splits)));
  f.push_back(
      bind<&C::sm_assignment>(named("sm_assignment", {"round_robin", "load_balance", "measured"},
                                    "placement of tiles: in turn; equal weight bytes per SM; bytes in proportion to each SM's measured bandwidth")));
  Field depth = range("pipelining_depth", 0, 8, 1, multiples(0, 8, 1), "tasks", "unfinished tasks that an SM's weight stream may run ahead of");
  depth.searched = {0, 1, 2, 4};
  f.push_back(bind<&C::pipelining_depth>(std::move(depth)));
  Field pages = named("page_allocation", {"graph_color", "linear", "none"},
                      "reuse of activation storage: coloured pages; one arena filled first-fit in program order; no reuse");
  pages.searched = {0};
  f.push_back(bind<&C::page_allocation>(std::move(pages)));
  f.push_back(bind<&C::threads_per_block>(range("threads_per_block", 128, 1024, 32, {128, 160, 288, 320, 352, 384, 416, 544, 800, 1024}, "threads",
                                                "consumer warps and one producer warp")));
  f.push_back(bind<&C::smem_bytes_per_block>(range("smem_bytes_per_block", 0, 262144, 1024,
                                                   {0, 32768, 49152, 65536, 81920, 98304, 131072, 163840, 196608, 212992}, "bytes",
                                                   "shared-memory ring for weights; 0 loads weights directly")));
  f.push_back(
      bind_kernel<&K::chunk_bytes>(enumerated("kernel_knobs.chunk_bytes", {4096, 8192, 16384, 32768}, "bytes", "one weight copy into the ring")));
  f.push_back(bind_kernel<&K::inflight_chunks>(enumerated("kernel_knobs.inflight_chunks", {1, 2, 3, 4, 6, 8}, "chunks",
                                                          "weight copies in flight per SM; more bytes in flight delay every other request")));
  f.push_back(bind_kernel<&K::gemv_path>(
      named("kernel_knobs.gemv_path", {"mma", "fma", "slices"},
            "how a GEMV is worked on: matrix instructions or fused multiply-add over a staged vector; or each warp its own slice "
            "of the columns, fetched and multiplied alone (short vectors)")));
  f.push_back(bind_kernel<&K::weight_layout>(
      named("kernel_knobs.weight_layout", {"row", "packed"}, "order of weights in memory: rows, or 8-row units in matrix-instruction order")));
  f.push_back(
      bind_kernel<&K::publish>(named("kernel_knobs.publish", {"release", "confirmed", "flagged"},
                                     "how a task makes its output visible: release counter, confirmed stores, or data that carries its epoch")));
  f.push_back(bind_kernel<&K::counters>(
      named("kernel_knobs.counters", {"vector", "kv_head"}, "granularity of the dependencies around attention: the whole vector, or one KV head")));
  Field kv_path = named("kernel_knobs.kv_path", {"direct", "ring"},
                        "how cache rows older than the launch reach attention: loaded by its warps, or through the ring, ahead of its wait");
  kv_path.silent_default = true;
  f.push_back(bind_kernel<&K::kv_path>(std::move(kv_path)));
  f.push_back(bind_kernel<&K::cols_per_warp>(
      enumerated("kernel_knobs.cols_per_warp", {128, 256, 512, 1024}, "columns", "columns of a chunk that one warp takes (fma path)")));
  f.push_back(bind_kernel<&K::cpasync>(boolean("kernel_knobs.cpasync", "cp.async instead of bulk copies (always so below sm_90)")));
  f.push_back(bind_kernel<&K::cpa_stages>(enumerated("kernel_knobs.cpa_stages", {2, 3, 4}, "stages", "cp.async groups in flight")));
  f.push_back(bind_kernel<&K::cpa_cols>(enumerated("kernel_knobs.cpa_cols", {256, 512, 1024}, "columns", "columns of one cp.async group")));
  Field tokens = enumerated("kernel_knobs.tokens_per_launch", {1, 2, 4, 8, 16, 32}, "tokens",
                            "decode steps of one launch, the argmax fed back on the device; the host sees their tokens together");
  // Not for a search to choose: whoever asks for several gets them together, which no time a token says.
  tokens.choices = {1};
  tokens.silent_default = true;
  f.push_back(bind_kernel<&K::tokens_per_launch>(std::move(tokens)));
  return f;
}

}  // namespace

bool Field::accepts(std::int64_t value) const {
  switch (type) {
    case FieldType::Boolean:
      return value == 0 || value == 1;
    case FieldType::Name:
      return value >= 0 && value < static_cast<std::int64_t>(names.size());
    case FieldType::Integer:
      break;
  }
  if (!accepted.empty()) return std::find(accepted.begin(), accepted.end(), value) != accepted.end();
  return value >= low && value <= high && (value - low) % step == 0;
}

std::int64_t Field::searched_as(std::int64_t value) const {
  std::int64_t same = searched.empty() ? value : searched.front();
  for (const std::int64_t s : searched)
    if (s <= value) same = s;
  return same;
}

std::string Field::accepted_text() const {
  std::string text;
  switch (type) {
    case FieldType::Boolean:
      return "true, false";
    case FieldType::Name:
      for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
      return text;
    case FieldType::Integer:
      break;
  }
  if (!accepted.empty()) {
    for (std::int64_t v : accepted) text += (text.empty() ? "" : ", ") + std::to_string(v);
    return text;
  }
  text = "integers from " + std::to_string(low) + " to " + std::to_string(high);
  return step == 1 ? text : text + " in steps of " + std::to_string(step);
}

Json Field::to_json(std::int64_t value) const {
  switch (type) {
    case FieldType::Boolean:
      return value != 0;
    case FieldType::Name:
      return names.at(static_cast<std::size_t>(value));
    case FieldType::Integer:
      break;
  }
  return value;
}

Result<std::int64_t> Field::from_json(const Json& json) const {
  std::int64_t value = -1;
  bool readable = false;
  switch (type) {
    case FieldType::Boolean:
      readable = json.is_boolean();
      if (readable) value = json.get<bool>() ? 1 : 0;
      break;
    case FieldType::Name:
      if (json.is_string()) {
        const auto at = std::find(names.begin(), names.end(), json.get_ref<const std::string&>());
        readable = at != names.end();
        value = at - names.begin();
      }
      break;
    case FieldType::Integer:
      if (json.is_number_float()) {
        // 16.0 is 16: JSON has one kind of number. The bound keeps the conversion exact.
        const double number = json.get<double>();
        readable = std::abs(number) <= 0x1.0p53 && std::trunc(number) == number;
        if (readable) value = static_cast<std::int64_t>(number);
      } else if (json.is_number_unsigned()) {
        const auto number = json.get<std::uint64_t>();
        readable = number <= std::uint64_t{1} << 53;
        if (readable) value = static_cast<std::int64_t>(number);
      } else if (json.is_number_integer()) {
        readable = true;
        value = json.get<std::int64_t>();
      }
      break;
  }
  if (!readable || !accepts(value)) return bad_field(path, json, accepted_text());
  return value;
}

std::span<const Field> schedule_fields() {
  static const std::vector<Field> fields = make_fields();
  return fields;
}

const Field* find_field(std::string_view path) {
  for (const Field& field : schedule_fields())
    if (field.path == path) return &field;
  return nullptr;
}

}  // namespace amk
