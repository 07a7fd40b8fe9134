// The megakernel's search space, and translation between its points and configs.
#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "core/model/model_spec.h"
#include "core/schedule/config.h"
#include "core/schedule/fields.h"
#include "core/schedule/fusion.h"
#include "core/schedule/rules.h"
#include "core/target/gpu_target.h"

namespace amk {
namespace {

// Shared memory that a default config leaves to everything but the ring: activations, descriptors, barriers. A first guess: whoever plans programs
// for the device moves the default where it does not fit.
constexpr std::int64_t kDefaultSmemRoom = 32768;

std::string atom_name(const FusionAtom& atom) { return "fusion_grouping[" + std::string(atom.name) + "]"; }

const FusionAtom* find_atom(std::string_view knob) {
  for (const FusionAtom& atom : fusion_atoms())
    if (knob == atom_name(atom)) return &atom;
  return nullptr;
}

// Choices up to the first that covers `limit`: larger ones would give the same program.
void keep_useful(std::vector<std::int64_t>& choices, std::int64_t limit) {
  const auto enough = std::find_if(choices.begin(), choices.end(), [&](std::int64_t c) { return c >= limit; });
  if (enough != choices.end()) choices.erase(enough + 1, choices.end());
}

// slices-needs-plain-heads; publish flagged needs bf16.
bool slices_fit(const ModelSpec& spec) { return spec.dtype == DType::BF16 && !spec.qk_norm && spec.weight_format != WeightFormat::Int8; }

struct Offer {
  std::vector<std::int64_t> choices;
  std::int64_t preferred = 0;
};

bool of_cpasync(const Field& field) { return field.path.starts_with("kernel_knobs.cpa"); }

Offer offer(const Field& field, const ModelSpec& spec, const GpuTarget& target, Choices of) {
  Offer o{of == Choices::All || field.searched.empty() ? field.choices : field.searched, field.get(ScheduleConfig{})};
  // Where bulk copies exist cp.async is behind them on every model (docs/lab/megakernel.md, 9, 20, 24).
  if (of == Choices::Searched && of_cpasync(field) && target.sm_major >= 9) o.choices = {o.preferred};
  if (field.path == "tiling.gemv.N_tile") {
    keep_useful(o.choices, std::max({spec.q_rows() + 2 * spec.kv_rows(), spec.hidden, 2 * spec.intermediate}));
  } else if (field.path == "tiling.attention.kv_block") {
    keep_useful(o.choices, spec.max_position);
  } else if (field.path == "smem_bytes_per_block") {
    std::erase_if(o.choices, [&](std::int64_t c) { return c > target.smem_optin_bytes; });
    o.preferred = 0;
    for (std::int64_t c : o.choices)
      if (c <= target.smem_optin_bytes - kDefaultSmemRoom) o.preferred = c;
  } else if (field.path == "kernel_knobs.counters" && spec.kv_heads == 1) {
    o.choices = {static_cast<std::int64_t>(CounterGranularity::Vector)};
  } else if (field.path == "kernel_knobs.kv_path" && !matrix_attention(spec)) {
    o.choices = {static_cast<std::int64_t>(KvPath::Direct)};
  } else if (spec.weight_format == WeightFormat::Int8 && field.path == "kernel_knobs.gemv_path") {
    o.choices = {static_cast<std::int64_t>(GemvPath::Mma)};  // int8 weights meet integer matrix instructions only
  } else if (spec.weight_format == WeightFormat::Int8 && field.path == "kernel_knobs.weight_layout") {
    o.choices = {static_cast<std::int64_t>(WeightLayout::Packed)};
  } else if (spec.weight_format == WeightFormat::Int8 && field.path == "kernel_knobs.cols_per_warp") {
    o.preferred *= 2;  // as many bytes as of 2-byte weights
  } else if (spec.dtype == DType::F32 && field.path == "kernel_knobs.gemv_path") {
    o.choices = {static_cast<std::int64_t>(GemvPath::Fma)};  // fp32 has no matrix instruction
  } else if (!slices_fit(spec) && field.path == "kernel_knobs.gemv_path") {
    std::erase(o.choices, static_cast<std::int64_t>(GemvPath::Slices));
  } else if (spec.dtype == DType::F32 && field.path == "kernel_knobs.weight_layout") {
    o.choices = {static_cast<std::int64_t>(WeightLayout::Row)};
  } else if (field.path == "kernel_knobs.cpasync" && target.sm_major < 9) {
    o.choices = {1};  // bulk copies do not exist there
  }
  if (std::find(o.choices.begin(), o.choices.end(), o.preferred) == o.choices.end()) o.preferred = o.choices.back();
  return o;
}

void add_field(SearchSpace& space, const Field& field, const Offer& o) {
  // One choice that every config has anyway is no knob; one choice that differs from the default must be in the space to reach the config.
  if (o.choices.size() == 1 && o.choices[0] == field.get(ScheduleConfig{})) return;
  Knob knob;
  knob.name = field.path;
  knob.kind = o.choices.size() == 1 ? KnobKind::Categorical : field.kind;
  for (std::int64_t c : o.choices) knob.choices.push_back(field.to_json(c));
  knob.default_index = static_cast<std::size_t>(std::find(o.choices.begin(), o.choices.end(), o.preferred) - o.choices.begin());
  knob.meaning = field.meaning;
  knob.unit = field.unit;
  space.knobs.push_back(std::move(knob));
}

void add_atoms(SearchSpace& space, const ModelSpec& spec, const GpuTarget& target) {
  // With fewer than two SMs per kv head, or one block of positions, attention is never split and there is nothing to combine.
  const bool splits = target.sm_count >= 2 * spec.kv_heads && spec.max_position > 64;
  for (const FusionAtom& atom : fusion_atoms()) {
    if (atom.member == &Fusion::combine_o && !splits) continue;
    if (atom.member == &Fusion::attention_combine && (!splits || !slices_fit(spec))) continue;
    Knob knob;
    knob.name = atom_name(atom);
    knob.kind = KnobKind::Boolean;
    knob.choices = {false, true};
    knob.default_index = Fusion{}.*atom.member ? 1 : 0;
    knob.meaning = atom.meaning;
    space.knobs.push_back(std::move(knob));
  }
}

// A rule as a constraint on points: the few knobs it reads, decoded beforehand.
Constraint constraint_of(std::string_view name, std::string_view reason, std::span<const std::string_view> paths,
                         std::function<bool(const ScheduleConfig&)> test, const SearchSpace& space) {
  struct Binding {
    std::size_t knob;
    const Field* field;      // or
    const FusionAtom* atom;  // whose choices are false and true
    std::vector<std::int64_t> values;
  };
  std::vector<Binding> bindings;
  std::vector<std::uint16_t> reads = space.places_of({paths.begin(), paths.end()});
  for (std::string_view path : paths) {
    const std::size_t index = space.index_of(path);
    if (index == space.knobs.size()) continue;  // not offered: the default holds
    Binding binding{index, find_field(path), find_atom(path), {}};
    for (const Json& choice : space.knobs[index].choices)
      binding.values.push_back(binding.atom != nullptr ? choice.get<bool>() : binding.field->from_json(choice).value());
    bindings.push_back(std::move(binding));
  }
  auto holds = [bindings = std::move(bindings), test = std::move(test)](const Point& point) {
    ScheduleConfig config;
    for (const Binding& b : bindings) {
      const std::int64_t value = b.values[point[b.knob]];
      if (b.atom != nullptr)
        config.fusion.*b.atom->member = value != 0;
      else
        b.field->set(config, value);
    }
    return test(config);
  };
  return {std::string(name), std::string(reason), std::move(holds), std::move(reads)};
}

// What the kernel does not do for several sequences (kernels/megakernel/device_rules.cpp refuses it by the same names).
void add_batch_constraints(SearchSpace& space, int batch) {
  static constexpr std::string_view kPaths[] = {"kernel_knobs.weight_layout", "kernel_knobs.gemv_path"}, kThreads[] = {"threads_per_block"};
  space.constraints.push_back(constraint_of(
      "batch-needs-mma", "several sequences share a packed weight only by matrix instructions", kPaths,
      [](const ScheduleConfig& c) { return c.kernel.weight_layout != WeightLayout::Packed || c.kernel.gemv_path == GemvPath::Mma; }, space));
  space.constraints.push_back(constraint_of(
      "batch-needs-warps", "each sequence of a batch is finished by a warp of its own, besides the producer's", kThreads,
      [batch](const ScheduleConfig& c) { return c.threads_per_block / 32 - 1 >= batch; }, space));
}

}  // namespace

SearchSpace megakernel_space(const ModelSpec& spec, const GpuTarget& target, int batch, Choices of) {
  SearchSpace space;
  for (const Field& field : schedule_fields()) {
    if (field.path == "sm_assignment") add_atoms(space, spec, target);  // after the tilings, as in the JSON form
    add_field(space, field, offer(field, spec, target, of));
  }
  for (const ConfigRule& rule : config_rules()) space.constraints.push_back(constraint_of(rule.name, rule.reason, rule.paths, rule.holds, space));
  if (batch > 1) add_batch_constraints(space, batch);
  return space;
}

ScheduleConfig config_at(const SearchSpace& space, const Point& point) {
  ScheduleConfig config;
  for (std::size_t i = 0; i < space.knobs.size() && i < point.size(); ++i) {
    const Json& choice = space.knobs[i].choices.at(point[i]);
    if (const FusionAtom* atom = find_atom(space.knobs[i].name)) {
      config.fusion.*atom->member = choice.get<bool>();
    } else if (const Field* field = find_field(space.knobs[i].name)) {
      field->set(config, field->from_json(choice).value());
    }
  }
  return config;
}

// What the space does not offer since it makes no difference becomes what it offers in its place.
static ScheduleConfig as_searched(const SearchSpace& space, ScheduleConfig config) {
  for (const Field& field : schedule_fields()) {
    const std::size_t at = space.index_of(field.path);
    const std::int64_t value = field.get(config);
    if (at == space.knobs.size()) {
      field.set(config, of_cpasync(field) && !config.kernel.cpasync ? field.get(ScheduleConfig{}) : field.searched_as(value));
    } else if (!field.searched.empty()) {
      const auto& choices = space.knobs[at].choices;
      if (std::find(choices.begin(), choices.end(), field.to_json(value)) == choices.end()) field.set(config, field.searched_as(value));
    }
  }
  return config;
}

Result<Point> point_of(const SearchSpace& space, const ScheduleConfig& as_given) {
  if (as_given.sm_assignment == SmAssignment::Explicit)
    return bad_field("sm_assignment", "an explicit map", "a value of the search space: round_robin, load_balance or measured");
  const ScheduleConfig config = as_searched(space, as_given);
  Point point;
  for (const Knob& knob : space.knobs) {
    Json value;
    if (const FusionAtom* atom = find_atom(knob.name)) {
      value = config.fusion.*atom->member;
    } else if (const Field* field = find_field(knob.name)) {
      value = field->to_json(field->get(config));
    }
    const auto at = std::find(knob.choices.begin(), knob.choices.end(), value);
    if (at == knob.choices.end()) return bad_field(knob.name, value, "a choice of the search space: " + Json(knob.choices).dump());
    point.push_back(static_cast<std::uint16_t>(at - knob.choices.begin()));
  }
  // What the space leaves out must have its default, or the point would mean another config.
  const ScheduleConfig same = config_at(space, point);
  for (const FusionAtom& atom : fusion_atoms())
    if (same.fusion.*atom.member != config.fusion.*atom.member)
      return bad_field(atom_name(atom), config.fusion.*atom.member, Json(same.fusion.*atom.member).dump() + " (not a knob of this search space)");
  for (const Field& field : schedule_fields())
    if (field.get(same) != field.get(config))
      return bad_field(field.path, field.to_json(field.get(config)), field.to_json(field.get(same)).dump() + " (not a knob of this search space)");
  return point;
}

}  // namespace amk
