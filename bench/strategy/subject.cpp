#include "bench/strategy/subject.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/replay/recorded/recorded_space.h"
#include "core/base/json.h"
#include "core/base/random.h"
#include "core/base/resources.h"
#include "kernels/registry.h"

namespace amk {
namespace {

// What each choice of a knob adds to the log cost, and what each pair of choices of two knobs that stand side by side does: by lot, but along the
// axis of an ordinal knob smooth. One point in twenty fails.
std::function<std::optional<double>(const Point&)> made_up_cost(const SearchSpace& space) {
  Rng rng(space.knobs.size());
  std::vector<std::vector<double>> alone;
  for (const Knob& knob : space.knobs) {
    const double n = static_cast<double>(knob.choices.size()), best = rng.uniform() * n;
    std::vector<double> effect;
    for (double c = 0; c < n; ++c) effect.push_back(knob.kind == KnobKind::Ordinal ? 0.5 * std::pow((c - best) / n, 2) : 0.3 * rng.uniform());
    alone.push_back(std::move(effect));
  }
  const std::uint64_t salt = rng.next();
  return [alone = std::move(alone), salt](const Point& p) -> std::optional<double> {
    std::uint64_t all = salt;
    double y = 0;
    for (std::size_t k = 0; k < p.size(); ++k) {
      y += alone[k][p[k]];
      all = mix64(all ^ p[k]);
      if (k > 0) y += 0.1 * Rng(mix64(salt + (std::uint64_t{p[k - 1]} << 32 | p[k] << 8 | k))).uniform();
    }
    return all % 20 == 0 ? std::nullopt : std::optional(100 * std::exp(y));
  };
}

Knob made_up_knob(const std::string& name, KnobKind kind, std::vector<Json> choices) {
  Knob knob;
  knob.name = name;
  knob.kind = kind;
  knob.choices = std::move(choices);
  return knob;
}

// 4·10^12 points, none of whose knobs says what its rule reads.
SearchSpace made_up_space() {
  SearchSpace space;
  for (int i = 0; i < 12; ++i) space.knobs.push_back(made_up_knob("ordinal" + std::to_string(i), KnobKind::Ordinal, {1, 2, 4, 8, 16, 32}));
  for (int i = 0; i < 11; ++i) space.knobs.push_back(made_up_knob("flag" + std::to_string(i), KnobKind::Boolean, {false, true}));
  space.constraints.push_back({"storage", "these share storage", [](const Point& p) { return p[0] + p[1] + p[2] <= 9; }});
  return space;
}

}  // namespace

Result<std::vector<Subject>> own_subjects() {
  std::vector<Subject> out;
  out.push_back({"made-up", made_up_space(), made_up_cost(made_up_space())});
  AMK_TRY(resources, find_resources());
  const std::pair<const char*, const char*> names[] = {{"llama-3.2-1b", "h200"},
                                                       {"smollm2-135m@b4", "h200"},
                                                       {"llama-3.1-8b@int8", "h200"},
                                                       {"small", "rtx5090"},
                                                       {"llama-3.2-1b#gate_up", "h200"},
                                                       {"llama-3.2-1b#attention", "h200"},
                                                       {"det_gemm:fwd:4096x4096x4096", "h200"},
                                                       {"det_gemm:fwd:16x14336x4096:nk", "h200"},
                                                       {"det_gemm:fwd:512x4096x4096:fp32", "h200"},
                                                       {"det_gemm:da:2048x4096x14336:nk", "h200"},
                                                       {"det_gemm:db:4096x4096x4096:kn:chunk512", "h200"},
                                                       {"det_gemm:db:4096x4096x4096:kn", "h200"},
                                                       {"det_gemm:fwd:64x4096x4096", "rtx5090"}};
  for (const auto& [workload, gpu] : names) {
    AMK_TRY(target, load_gpu_target(gpu, resources.config() / "gpus"));
    AMK_TRY(opened, open_workload(workload, target));
    out.push_back({opened->id() + " on " + gpu, opened->space(), made_up_cost(opened->space())});
  }
  return out;
}

Result<std::vector<Subject>> recorded_subjects(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> files;
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) {
    for (const auto& entry : std::filesystem::directory_iterator(path, code))
      if (entry.path().extension() == ".tsv") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
  } else {
    files = {path};
  }
  if (files.empty()) return bad_field("--spaces", path.string(), "a recorded space (.tsv), or a folder of such");
  std::vector<Subject> out;
  for (const auto& file : files) {
    AMK_TRY(loaded, RecordedSpace::load(file));
    const auto space = std::make_shared<const RecordedSpace>(std::move(loaded));
    out.push_back({space->name(), space->space(), [space](const Point& p) { return space->true_cost(p); }});
  }
  return out;
}

}  // namespace amk
