#include "bench/decode/entry.h"

#include <fstream>

#include "core/base/parse_json.h"

namespace amk::bench {

PlanOptions options_of(const Entry& e) {
  PlanOptions options;
  options.batch = e.batch;
  options.cache_ring_from = e.ring_from;
  options.staged_rows = e.staged;
  return options;
}

Result<std::vector<Entry>> read_entries(const std::string& path, const ModelRef& ref, const GpuTarget& target) {
  std::vector<Entry> entries;
  if (path.empty()) {  // the default that fits, of each size of batch
    std::vector<int> sizes{ref.batch};
    if (ref.batch > 1) sizes.push_back(1);
    for (const int batch : sizes) {
      ModelRef of = ref;
      of.batch = batch;
      AMK_TRY(workload, MegakernelWorkload::create(of, target));
      AMK_TRY(config, workload->parse(workload->default_config()));
      Entry& e = entries.emplace_back();
      e.name = batch == 1 ? "default" : "default, batch " + std::to_string(batch);
      e.config = config;
      e.batch = batch;
    }
    return entries;
  }
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty() || line[0] == '#') continue;
    AMK_TRY(json, parse_json(line, path));
    AMK_TRY(config, parse_schedule_config(json.at("config")));
    Entry e;
    e.name = json.value("name", "");
    e.config = config;
    e.batch = json.value("batch", ref.batch);
    e.launch = json.value("launch", 0);
    e.ring_from = json.value("ring_from", 0);
    e.traced = json.value("trace", false);
    e.staged = json.value("staged", 0);
    if (e.batch != 1 && e.batch != ref.batch) return bad_field("batch", e.batch, "1 or " + std::to_string(ref.batch));
    const bool both = ref.batch > 1 && !json.contains("batch");
    entries.push_back(std::move(e));
    if (!both) continue;
    Entry& one = entries.emplace_back();
    one.name = json.value("name", "") + ", one sequence";
    one.config = config;
  }
  return entries;
}

Status add_neighbours(std::vector<Entry>& entries, const ModelSpec& spec, const GpuTarget& target) {
  const int batch = entries.front().batch;
  const SearchSpace space = megakernel_space(spec, target, batch, Choices::All);
  AMK_TRY(base, point_of(space, entries.front().config));
  for (std::size_t k = 0; k < space.knobs.size(); ++k) {
    for (std::size_t c = 0; c < space.knobs[k].choices.size(); ++c) {
      if (c == base[k]) continue;
      Point moved = base;
      moved[k] = static_cast<std::uint16_t>(c);
      if (space.violated(moved) != nullptr) continue;
      Entry e;
      e.name = space.knobs[k].name + " = " + space.knobs[k].choices[c].dump();
      e.config = config_at(space, moved);
      e.batch = batch;
      entries.push_back(std::move(e));
    }
  }
  return {};
}

}  // namespace amk::bench
