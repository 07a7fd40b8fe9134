#include "kernels/det_gemm/config.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <span>
#include <string_view>

namespace amk::det_gemm {
namespace {

// One row per knob: everything that parsing, printing and the search space need.
struct IntKnob {
  std::string_view name;
  int Config::*field;
  std::span<const int> choices;
  std::string_view unit, meaning;
};
struct NameKnob {
  std::string_view name;
  std::span<const std::string_view> choices;
  std::size_t (*get)(const Config&);
  void (*set)(Config&, std::size_t);
  std::string_view meaning;
};

constexpr std::array kTileM = {16, 32, 64, 128, 192, 256};
constexpr std::array kTileN = {8, 16, 24, 32, 48, 64, 80, 96, 104, 112, 120, 128, 144, 160, 176, 192, 208, 224, 240, 256};
constexpr std::array kTileK = {32, 64, 128, 256};
constexpr std::array kStages = {2, 3, 4, 5, 6, 7, 8, 10, 12, 16};
constexpr std::array kConsumers = {1, 2, 3};
constexpr std::array kCluster = {1, 2, 4};
constexpr std::array kGroup = {1, 2, 4, 8, 16, 32, 64};
constexpr std::array kStoreBuffers = {1, 2, 4};
constexpr std::array kFetch = {0, 128, 256};

constexpr std::array kIntKnobs = {
    IntKnob{"tile.m", &Config::tile_m, kTileM, "rows", "output rows a block computes (columns when swap is on)"},
    IntKnob{"tile.n", &Config::tile_n, kTileN, "columns", "output columns a block computes (rows when swap is on)"},
    IntKnob{"tile.k", &Config::tile_k, kTileK, "elements", "depth of one stage"},
    IntKnob{"stages", &Config::stages, kStages, "stages", "tiles in flight between memory and the matrix units"},
    IntKnob{"consumers", &Config::consumers, kConsumers, "warpgroups", "warpgroups that run wgmma; each takes tile.m / consumers rows"},
    IntKnob{"cluster.m", &Config::cluster_m, kCluster, "blocks", "blocks along m that share one column tile by multicast"},
    IntKnob{"cluster.n", &Config::cluster_n, kCluster, "blocks", "blocks along n that share one row tile by multicast"},
    IntKnob{"raster.group", &Config::group, kGroup, "tiles", "tiles in one band of the walk over the output: what L2 reuses"},
    IntKnob{"l2.fetch", &Config::l2_fetch, kFetch, "bytes", "what a miss of L2 brings in from memory; 0: what was asked"},
    IntKnob{"store_buffers", &Config::store_buffers, kStoreBuffers, "buffers", "16×64 staging buffers a warp of the tma epilogue"},
};

constexpr std::array<std::string_view, 3> kPath = {"wgmma", "mma", "plain"};
constexpr std::array<std::string_view, 2> kAlong = {"m", "n"};
constexpr std::array<std::string_view, 3> kEpilogue = {"tma", "staged", "direct"};
constexpr std::array<std::string_view, 3> kHint = {"normal", "evict_first", "evict_last"};
constexpr std::array<std::string_view, 2> kProducer = {"warpgroup", "warp"};

constexpr std::array kNameKnobs = {
    NameKnob{"path", kPath, [](const Config& c) { return static_cast<std::size_t>(c.path); },
             [](Config& c, std::size_t i) { c.path = static_cast<Path>(i); }, "instructions: Hopper's wgmma and TMA, mma.sync, or the plain kernel"},
    NameKnob{"raster.along", kAlong, [](const Config& c) { return static_cast<std::size_t>(c.raster); },
             [](Config& c, std::size_t i) { c.raster = static_cast<RasterAlong>(i); }, "dimension that the bands of the walk divide"},
    NameKnob{"epilogue", kEpilogue, [](const Config& c) { return static_cast<std::size_t>(c.epilogue); },
             [](Config& c, std::size_t i) { c.epilogue = static_cast<Epilogue>(i); },
             "outputs through shared memory and TMA, through shared memory 16 bytes a lane, or straight from registers"},
    NameKnob{"l2.x", kHint, [](const Config& c) { return static_cast<std::size_t>(c.l2_x); },
             [](Config& c, std::size_t i) { c.l2_x = static_cast<L2Hint>(i); }, "how the left operand's lines leave L2"},
    NameKnob{"l2.y", kHint, [](const Config& c) { return static_cast<std::size_t>(c.l2_y); },
             [](Config& c, std::size_t i) { c.l2_y = static_cast<L2Hint>(i); }, "how the right operand's lines leave L2"},
    NameKnob{"producer", kProducer, [](const Config& c) { return static_cast<std::size_t>(c.producer); },
             [](Config& c, std::size_t i) { c.producer = static_cast<Producer>(i); },
             "who fills the ring: a warpgroup that gives its registers to the consumers, or one warp, where accumulators are few"},
};

struct BoolKnob {
  std::string_view name;
  bool Config::*field;
  std::string_view meaning;
};
constexpr std::array kBoolKnobs = {
    BoolKnob{"swap", &Config::swap, "put output columns on the 64-row side of wgmma: less padding for few rows"},
    BoolKnob{"overlap", &Config::overlap, "set up while the stream's previous kernel drains (programmatic dependent launch)"},
    BoolKnob{"defer", &Config::defer, "store a tile's outputs while the next tile's first blocks are computed, not before"},
};

template <class Names>
std::string join(const Names& names) {
  std::string text;
  for (const auto& name : names) {
    if (!text.empty()) text += ", ";
    if constexpr (std::is_same_v<std::decay_t<decltype(name)>, int>)
      text += std::to_string(name);
    else
      text += name;
  }
  return text;
}

void put(Json& root, std::string_view name, Json value) {
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos)
    root[std::string(name)] = std::move(value);
  else
    root[std::string(name.substr(0, dot))][std::string(name.substr(dot + 1))] = std::move(value);
}

Status set_field(Config& config, std::string_view name, const Json& value) {
  const std::string field = "config." + std::string(name);
  for (const IntKnob& knob : kIntKnobs) {
    if (knob.name != name) continue;
    if (value.is_number_integer()) {
      for (const int choice : knob.choices) {
        if (value == choice) {
          config.*knob.field = choice;
          return {};
        }
      }
    }
    return bad_field(field, value, join(knob.choices));
  }
  for (const NameKnob& knob : kNameKnobs) {
    if (knob.name != name) continue;
    for (std::size_t i = 0; i < knob.choices.size(); ++i) {
      if (value.is_string() && value.get_ref<const std::string&>() == knob.choices[i]) {
        knob.set(config, i);
        return {};
      }
    }
    return bad_field(field, value, join(knob.choices));
  }
  for (const BoolKnob& knob : kBoolKnobs) {
    if (knob.name != name) continue;
    if (!value.is_boolean()) return bad_field(field, value, "true, false");
    config.*knob.field = value.get<bool>();
    return {};
  }
  std::string accepted;
  for (const NameKnob& knob : kNameKnobs) accepted += std::string(knob.name) + ", ";
  for (const IntKnob& knob : kIntKnobs) accepted += std::string(knob.name) + ", ";
  for (const BoolKnob& knob : kBoolKnobs) accepted += std::string(knob.name) + (&knob == &kBoolKnobs.back() ? "" : ", ");
  return bad_field(field, value, "a knob of this family: " + accepted);
}

}  // namespace

Result<Config> parse_config(const Json& json, const Config& defaults) {
  if (!json.is_object()) return bad_field("config", json, "an object of knobs");
  Config config = defaults;
  for (const auto& [key, value] : json.items()) {
    if (value.is_object()) {
      for (const auto& [inner, inner_value] : value.items()) AMK_CHECK(set_field(config, key + "." + inner, inner_value));
    } else {
      AMK_CHECK(set_field(config, key, value));
    }
  }
  return config;
}

Json to_json(const Config& config) {
  Json json = Json::object();
  for (const IntKnob& knob : kIntKnobs) put(json, knob.name, config.*knob.field);
  for (const NameKnob& knob : kNameKnobs) put(json, knob.name, knob.choices[knob.get(config)]);
  for (const BoolKnob& knob : kBoolKnobs) put(json, knob.name, config.*knob.field);
  return json;
}

SearchSpace knob_space(const Config& defaults) {
  SearchSpace space;
  for (const NameKnob& knob : kNameKnobs) {
    Knob k{.name = std::string(knob.name),
           .kind = KnobKind::Categorical,
           .choices = {},
           .default_index = knob.get(defaults),
           .meaning = std::string(knob.meaning),
           .unit = ""};
    for (const auto& choice : knob.choices) k.choices.emplace_back(choice);
    space.knobs.push_back(std::move(k));
  }
  for (const IntKnob& knob : kIntKnobs) {
    Knob k{.name = std::string(knob.name),
           .kind = KnobKind::Ordinal,
           .choices = {},
           .default_index = 0,
           .meaning = std::string(knob.meaning),
           .unit = std::string(knob.unit)};
    for (std::size_t i = 0; i < knob.choices.size(); ++i) {
      k.choices.emplace_back(knob.choices[i]);
      if (knob.choices[i] == defaults.*knob.field) k.default_index = i;
    }
    space.knobs.push_back(std::move(k));
  }
  for (const BoolKnob& knob : kBoolKnobs) {
    space.knobs.push_back({.name = std::string(knob.name),
                           .kind = KnobKind::Boolean,
                           .choices = {false, true},
                           .default_index = defaults.*knob.field ? 1u : 0u,
                           .meaning = std::string(knob.meaning),
                           .unit = ""});
  }
  return space;
}

Config config_of(const SearchSpace& space, const Point& point) { return ConfigReader(space)(point); }

ConfigReader::ConfigReader(const SearchSpace& space) {
  static std::atomic<std::uint64_t> last{0};
  id_ = ++last;
  for (const Knob& knob : space.knobs) {
    std::vector<Setting> choices;
    for (const Json& choice : knob.choices) choices.push_back(setting(knob.name, choice));
    settings_.push_back(std::move(choices));
  }
}

// A space's own choices are choices of a knob.
ConfigReader::Setting ConfigReader::setting(std::string_view name, const Json& choice) {
  for (const IntKnob& knob : kIntKnobs)
    if (knob.name == name) return {.number = knob.field, .value = choice.get<int>()};
  for (const BoolKnob& knob : kBoolKnobs)
    if (knob.name == name) return {.flag = knob.field, .value = choice.get<bool>()};
  for (const NameKnob& knob : kNameKnobs)
    if (knob.name == name)
      return {.name = knob.set,
              .value =
                  static_cast<int>(std::find(knob.choices.begin(), knob.choices.end(), choice.get_ref<const std::string&>()) - knob.choices.begin())};
  return {};
}

const Config& ConfigReader::operator()(const Point& point) const {
  struct Read {
    std::uint64_t reader = 0;
    Point point;
    Config config;
  };
  static thread_local Read read;
  if (read.reader == id_ && read.point == point) return read.config;
  read.reader = id_;
  read.point = point;
  read.config = {};
  for (std::size_t k = 0; k < settings_.size() && k < point.size(); ++k) {
    const Setting& s = settings_[k][point[k]];
    if (s.number != nullptr) read.config.*s.number = s.value;
    if (s.flag != nullptr) read.config.*s.flag = s.value != 0;
    if (s.name != nullptr) s.name(read.config, static_cast<std::size_t>(s.value));
  }
  return read.config;
}

Result<Point> point_of(const SearchSpace& space, const Config& config) {
  const Json flat = to_json(config).flatten();
  Point point;
  for (const Knob& knob : space.knobs) {
    std::string path = "/" + knob.name;
    for (char& c : path)
      if (c == '.') c = '/';
    const Json& value = flat.at(path);
    std::size_t index = 0;
    while (index < knob.choices.size() && knob.choices[index] != value) ++index;
    if (index == knob.choices.size()) return bad_field("config." + knob.name, value, "a choice of this space");
    point.push_back(static_cast<std::uint16_t>(index));
  }
  return point;
}

}  // namespace amk::det_gemm
