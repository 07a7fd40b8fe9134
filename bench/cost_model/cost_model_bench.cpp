// The cost model against what was measured. bench_cost_model [--gpu h200] [--measured FILE] [--fit STEPS] [--stages 1]
// --stages 1: of each model's first row and of those that were traced, how far each kind of instruction moves the end of the step.
// FILE: one JSON object a line: {"model", "base": config, "knob" and "value" (one knob of the base moved; may be absent), "us", "position";
// "stages_us" of a traced step, "traced_at": at how many entries, where that was not "position"; "between": [a, b], where steps of so many entries
// were timed and what they take differs; "read_gbs" of the card; "max_seq", where it was not 512; "less_us": what today's kernels take less than
// those of then; "search": of which search it is an evaluation, among whose rows alone it is ranked; "held_out": the fit does not see it}; without
// --measured measured/GPU.jsonl and measured/GPU-searches.jsonl. Prints one JSON object a row, then one a model and search: Spearman's rank
// correlation, median and worst error, and how slow, measured, the config is that the model likes best. --folds K: every row as constants fitted to
// the others, K at a time apart, predict it. --fit: least squares over the constants, or those whose names begin with --only PREFIX[,PREFIX…], so
// many steps; prints them.
// --sample MODEL --from FILE [--count N] [--seed S]: what to measure next, for bench_decode: the first config of FILE ({"name", "config"} a line),
// each of its knobs moved alone but where that is predicted to take twice as long, and N configs two to four moves from any of FILE's within 15% of
// the fastest.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "core/base/json.h"
#include "core/base/parallel.h"
#include "core/base/parse_json.h"
#include "core/base/resources.h"
#include "core/base/stats.h"
#include "core/model/load.h"
#include "core/program/lower.h"
#include "core/schedule/random_config.h"
#include "core/target/cost_model.h"
#include "core/target/machine_rates.h"
#include "core/target/timeline.h"
#include "kernels/megakernel/gpu_layout.h"
#include "orchestrator/strategy/rank_correlation.h"

using namespace amk;

namespace {

constexpr double kStages = 4;
constexpr double kTraceUs =
    0.1;  // a stage is longer where its blocks write marks: a traced step takes 0.05 to 0.28 µs a stage more than it does without

struct Row {
  std::string model, name;
  bool held_out = false;
  std::string group;  // what its rank is among: the rows of its model, or of one search
  ScheduleConfig config;
  Program program;
  std::vector<Program> shorter;             // the same of few layers, for the fit: layers are alike
  double full_over_shorter = 1;             // predictions, at the constants where the fit begins
  double measured_us = 0, best_us = 0;      // best: the fastest row of the model
  double weight = 1;                        // so that each model counts as much …
  double stage_weight = 0;                  // … and all of its stages kStages of that
  std::map<std::string, double> stages_us;  // of one traced step, where it was traced: see stages_of
  int position = 0, traced_at = 0;
  std::vector<int> timed_at;  // entries of the steps that were timed: their mean is
  GpuTarget target;           // with the read bandwidth of the card that ran it, where that was measured
};

// The timeline and the launch: predict() without its floor and without the write-back of activations (under 1%).
double end_us(const Row& row, const Program& program, const MachineRates& rates) {
  double us = 0;
  for (const int at : row.timed_at) us += simulate(program, rates, at - 1, kv_from_hbm(row.program, row.target, at, 0.0), true).end_us;
  return us / static_cast<double>(row.timed_at.size());
}
double predicted_us(const Row& row, const CostConstants& constants) {
  const MachineRates rates = machine_rates(row.config, row.target, 0.0, constants);
  return end_us(row, row.program, rates) + rates.launch_us;
}

// From two programs of few layers: a third of the time.
double extrapolated_us(const Row& row, const CostConstants& constants) {
  const MachineRates rates = machine_rates(row.config, row.target, 0.0, constants);
  double us[2] = {};
  for (const int i : {0, 1}) us[i] = end_us(row, row.shorter[i], rates);
  const int few = row.shorter[0].model.layers, more = row.shorter[1].model.layers;
  return (us[1] + (us[1] - us[0]) / (more - few) * (row.program.model.layers - more) + rates.launch_us) * row.full_over_shorter;
}

// How far each kind of instruction moves the end of the step: medians over layers, as a trace shows them (docs/lab/megakernel.md).
std::map<std::string, double> stages_of(const Row& row, const Program& program, const CostConstants& constants) {
  const Timeline timeline = simulate(program, machine_rates(row.config, row.target, 0.0, constants), row.traced_at - 1,
                                     kv_from_hbm(row.program, row.target, row.traced_at, 0.0), true);
  std::map<std::string, std::vector<double>> kinds;
  double reached = 0;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const double end = std::max(reached, timeline.instruction_end_us[i]);
    kinds[instruction.name.substr(instruction.layer < 0 ? 0 : instruction.name.find('.') + 1)].push_back(end - reached);
    reached = end;
  }
  std::map<std::string, double> stages;
  for (auto& [kind, us] : kinds) stages[kind] = median(us) + kTraceUs;
  return stages;
}

Result<std::vector<Row>> read_rows(const std::vector<std::string>& paths, const GpuTarget& target, const Resources& resources) {
  std::vector<Json> lines;
  for (const std::string& path : paths) {
    std::ifstream in(path);
    if (!in) return fail(ErrorKind::NotFound, "cannot read " + path);
    for (std::string line; std::getline(in, line);) {
      AMK_TRY(json, parse_json(line, path));
      lines.push_back(std::move(json));
    }
  }
  std::vector<Row> rows;
  for (const Json& json : lines) {
    Row row;
    row.model = json.at("model").get<std::string>();
    AMK_TRY(ref, resolve_model(row.model, ModelSources::from_environment(resources.config())));
    const SearchSpace space = megakernel_space(ref.spec, target, ref.batch, Choices::All);
    AMK_TRY(config, parse_schedule_config(json.at("base")));
    row.name = "base";
    if (json.contains("knob")) {
      AMK_TRY(point, point_of(space, config));
      const std::string knob = json.at("knob").get<std::string>();
      const std::size_t k = space.index_of(knob);
      if (k == space.knobs.size()) return bad_field("knob", json.at("knob"), "a knob of the space");
      const auto& choices = space.knobs[k].choices;
      const auto at = std::find(choices.begin(), choices.end(), json.at("value"));
      if (at == choices.end()) return bad_field("value", json.at("value"), "a choice of " + knob);
      point[k] = static_cast<std::uint16_t>(at - choices.begin());
      config = config_at(space, point);
      row.name = knob + " = " + at->dump();
    }
    row.config = config;
    if (json.contains("name")) row.name = json.at("name").get<std::string>();
    if (json.contains("stages_us")) row.stages_us = json.at("stages_us").get<std::map<std::string, double>>();
    row.held_out = json.value("held_out", false);
    row.group = json.contains("search") ? row.model + ", search " + json.at("search").get<std::string>() : row.model;
    row.position = json.at("position").get<int>();
    row.traced_at = json.value("traced_at", row.position);
    row.timed_at = {row.position};
    if (json.contains("between")) {
      constexpr int kSteps = 4;
      const auto [first, last] = json.at("between").get<std::pair<int, int>>();
      row.timed_at.clear();
      for (int i = 0; i < kSteps; ++i) row.timed_at.push_back(first + (last - first) * (2 * i + 1) / (2 * kSteps));
    }
    row.target = target;
    row.target.read_bandwidth_gbs = json.value("read_gbs", target.read_bandwidth_gbs);
    row.measured_us = json.at("us").get<double>() - json.value("less_us", 0.0);
    LoweringTarget lowering;
    lowering.sm_count = target.sm_count;
    lowering.smem_optin_bytes = target.smem_optin_bytes;
    lowering.max_seq = json.value("max_seq", 512);
    lowering.batch = ref.batch;
    AMK_TRY(program, lower(ref.spec, config, lowering, gpu_format(ref.spec.dtype)));
    row.program = std::move(program);
    for (const int layers : {2, 5}) {
      ModelSpec few = ref.spec;
      few.layers = layers;
      AMK_TRY(part, lower(few, config, lowering, gpu_format(ref.spec.dtype)));
      row.shorter.push_back(std::move(part));
    }
    rows.push_back(std::move(row));
  }
  for (Row& row : rows) {
    row.best_us = row.measured_us;
    double of_model = 0, stages = 0;
    for (const Row& other : rows) {
      if (other.model != row.model || other.held_out) continue;
      row.best_us = std::min(row.best_us, other.measured_us);
      ++of_model;
      stages += static_cast<double>(other.stages_us.size());
    }
    row.weight = 1.0 / of_model;
    row.stage_weight = kStages / std::max(1.0, stages);
  }
  return rows;
}

constexpr double kUsual = 0.03;   // log error up to which it counts squared, and beyond which no more than by its size: what the timeline cannot know
                                  // must not pull on everything else …
constexpr double kLargest = 0.5;  // … and beyond this no more at all
constexpr double kUsualStage = 0.06;    // likewise of a stage, whose layers differ by …
constexpr double kAllowedStage = 0.05;  // … so much, which counts nothing
constexpr double kPrior = 0.02;         // weight of each constant's distance (log) from where the fit began: what no row tells stays there

// Which rows are simulated: of those of a model that the constants at hand cannot tell apart (knobs that the timeline does not know), the first.
std::vector<std::size_t> representatives(const std::vector<Row>& rows, const CostConstants& constants) {
  std::map<std::pair<std::string, double>, std::size_t> first;
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < rows.size(); ++i) out.push_back(first.try_emplace({rows[i].model, predicted_us(rows[i], constants)}, i).first->second);
  return out;
}

// Weighted log errors: what is near the best counts most, since there a search decides. Sum of squares: 1 where every row is off by a factor of e.
std::vector<double> residuals(const std::vector<Row>& rows, const std::vector<std::size_t>& as, const CostConstants& constants,
                              const std::vector<bool>& used) {
  std::vector<double> us(rows.size());
  std::vector<std::map<std::string, double>> stages(rows.size());
  ThreadPool().for_ranges(static_cast<std::int64_t>(rows.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (as[at] == at) us[at] = extrapolated_us(rows[at], constants);
      if (!rows[at].stages_us.empty()) stages[at] = stages_of(rows[at], rows[at].shorter[1], constants);
    }
  });
  std::vector<double> out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const bool counts = !row.held_out && (used.empty() || used[i]);
    const auto add = [&](double predicted, double measured, double weight, double usual, double allowed) {
      const double off = std::clamp(std::log(predicted / measured), -kLargest, kLargest);
      const double error = std::copysign(std::max(0.0, std::abs(off) - allowed), off) / usual;
      out.push_back(counts ? std::copysign(std::sqrt(weight * 2 * (std::sqrt(1 + error * error) - 1)) * usual, error) : 0.0);
    };
    add(us[as[i]], row.measured_us, row.weight * row.best_us / row.measured_us, kUsual, 0.0);
    for (const auto& [kind, traced] : row.stages_us)
      if (const auto at = stages[i].find(kind); at != stages[i].end())
        add(std::max(at->second, 1e-3), traced, row.stage_weight, kUsualStage, kAllowedStage);
  }
  return out;
}

struct Constant {
  const char* name;
  double CostConstants::*member;
};
constexpr Constant kConstants[] = {
    {"launch_us", &CostConstants::launch_us},
    {"task_us", &CostConstants::task_us},
    {"task_us_per_warp", &CostConstants::task_us_per_warp},
    {"step_us", &CostConstants::step_us},
    {"fma_us_per_kb", &CostConstants::fma_us_per_kb},
    {"odd_step_us", &CostConstants::odd_step_us},
    {"attention_spill_us", &CostConstants::attention_spill_us},
    {"turn_us", &CostConstants::turn_us},
    {"last_turn_us", &CostConstants::last_turn_us},
    {"unhoisted_us", &CostConstants::unhoisted_us},
    {"norm_us", &CostConstants::norm_us},
    {"consume_bytes_per_clock_warp", &CostConstants::consume_bytes_per_clock_warp},
    {"shared_bytes_per_clock", &CostConstants::shared_bytes_per_clock},
    {"attention_bytes_per_clock_warp", &CostConstants::attention_bytes_per_clock_warp},
    {"attention_us", &CostConstants::attention_us},
    {"merge_us", &CostConstants::merge_us},
    {"ring_attention_bytes_per_clock", &CostConstants::ring_attention_bytes_per_clock},
    {"append_us", &CostConstants::append_us},
    {"asked_share", &CostConstants::asked_share},
    {"flagged_row_us", &CostConstants::flagged_row_us},
    {"flagged_row_looks", &CostConstants::flagged_row_looks},
    {"confirmed_us_per_kb", &CostConstants::confirmed_us_per_kb},
    {"slices_direct_us", &CostConstants::slices_direct_us},
    {"slices_spill_us", &CostConstants::slices_spill_us},
    {"slices_attention_spill_us", &CostConstants::slices_attention_spill_us},
    {"slices_quad_us", &CostConstants::slices_quad_us},
    {"l2_bytes_per_clock_sm", &CostConstants::l2_bytes_per_clock_sm},
    {"lone_release_us", &CostConstants::lone_release_us},
    {"confirmed_us", &CostConstants::confirmed_us},
    {"lone_confirmed_us", &CostConstants::lone_confirmed_us},
    {"hop_scale", &CostConstants::hop_scale},
    {"lag_us", &CostConstants::lag_us},
    {"soon_lag_us", &CostConstants::soon_lag_us},
    {"stream_share", &CostConstants::stream_share},
    {"late_kv_share", &CostConstants::late_kv_share},
    {"flagged_us", &CostConstants::flagged_us},
    {"packet_fetch", &CostConstants::packet_fetch},
    {"busy_publish_us", &CostConstants::busy_publish_us},
    {"flagged_traffic", &CostConstants::flagged_traffic},
    {"max_load", &CostConstants::max_load},
    {"hop_exponent", &CostConstants::hop_exponent},
    {"sight_us", &CostConstants::sight_us},
    {"busy_sight_us", &CostConstants::busy_sight_us},
    {"load_latency_us", &CostConstants::load_latency_us},
    {"cpasync_share", &CostConstants::cpasync_share},
    {"slices_task_us", &CostConstants::slices_task_us},
    {"slices_group_us", &CostConstants::slices_group_us},
    {"slices_block_us", &CostConstants::slices_block_us},
    {"slices_publish_us", &CostConstants::slices_publish_us},
    {"slices_poll_us", &CostConstants::slices_poll_us},
    {"slices_turn_us", &CostConstants::slices_turn_us},
    {"attention_o_turn_us", &CostConstants::attention_o_turn_us},
    {"attention_o_late_us", &CostConstants::attention_o_late_us},
    {"attention_o_late_bytes_per_clock", &CostConstants::attention_o_late_bytes_per_clock},
    {"slices_unit_us", &CostConstants::slices_unit_us},
    {"slices_head_us", &CostConstants::slices_head_us},
    {"slices_merge_us", &CostConstants::slices_merge_us},
    {"slices_attention_us", &CostConstants::slices_attention_us},
    {"slices_bytes_per_clock", &CostConstants::slices_bytes_per_clock},
    {"attention_o_us", &CostConstants::attention_o_us},
    {"attention_o_round_us", &CostConstants::attention_o_round_us},
    {"slices_sight_us", &CostConstants::slices_sight_us},
};

// Whether `name` begins with one of `prefixes`, which commas part.
bool among(const std::string& name, const std::string& prefixes) {
  std::istringstream in(prefixes);
  bool any = false;
  for (std::string prefix; std::getline(in, prefix, ',');) any = any || name.starts_with(prefix);
  return any || prefixes.empty();
}

// Levenberg and Marquardt's least squares over the constants' logarithms. `only`: constants whose names begin so; empty: all.
CostConstants fit(std::vector<Row>& rows, int steps, const std::string& only, const std::vector<bool>& used = {}) {
  std::vector<double CostConstants::*> moved;
  for (const Constant& c : kConstants)
    if (among(c.name, only)) moved.push_back(c.member);
  const CostConstants begun;
  for (Row& row : rows) row.full_over_shorter *= predicted_us(row, begun) / extrapolated_us(row, begun);
  const auto as = representatives(rows, begun);
  const auto at = [&](const std::vector<double>& log) {
    CostConstants out = begun;
    for (std::size_t k = 0; k < moved.size(); ++k) out.*moved[k] *= std::exp(log[k]);
    return out;
  };
  const auto errors = [&](const std::vector<double>& log) {
    std::vector<double> r = residuals(rows, as, at(log), used);
    for (const double x : log) r.push_back(kPrior * x);
    return r;
  };
  const auto squares = [](const std::vector<double>& r) { return std::inner_product(r.begin(), r.end(), r.begin(), 0.0); };
  std::vector<double> best(moved.size(), 0.0);
  std::vector<double> r = errors(best);
  double damping = 1e-2;
  for (int step = 0; step < steps; ++step) {
    const std::size_t n = moved.size();
    std::vector<std::vector<double>> slope(n);
    for (std::size_t k = 0; k < n; ++k) {
      constexpr double kNudge = 0.04;
      std::vector<double> tried = best;
      tried[k] += kNudge;
      slope[k] = errors(tried);
      for (std::size_t i = 0; i < r.size(); ++i) slope[k][i] = (slope[k][i] - r[i]) / kNudge;
    }
    bool better = false;
    for (int tries = 0; tries < 5 && !better; ++tries) {
      std::vector<std::vector<double>> a(n, std::vector<double>(n + 1));
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) a[i][j] = std::inner_product(slope[i].begin(), slope[i].end(), slope[j].begin(), 0.0);
        a[i][i] = a[i][i] * (1 + damping) + 1e-9;
        a[i][n] = -std::inner_product(slope[i].begin(), slope[i].end(), r.begin(), 0.0);
      }
      for (std::size_t i = 0; i < n; ++i)  // symmetric and positive: no pivots needed
        for (std::size_t j = 0; j < n; ++j) {
          if (i == j) continue;
          const double f = a[j][i] / a[i][i];
          for (std::size_t k = i; k <= n; ++k) a[j][k] -= f * a[i][k];
        }
      std::vector<double> tried = best;
      for (std::size_t k = 0; k < n; ++k) tried[k] += std::clamp(a[k][n] / a[k][k], -0.3, 0.3);
      const std::vector<double> e = errors(tried);
      better = squares(e) < squares(r);
      if (better)
        best = tried, r = e, damping = std::max(1e-4, damping / 4);
      else
        damping *= 6;
    }
    std::fprintf(stderr, "step %d: sum of squares %.5f\n", step, squares(r));
    if (!better) break;
  }
  return at(best);
}

// Of every traced row, and of each model's first.
void print_stages(const Row& row, const CostConstants& constants) {
  Json stages = Json::object(), ratios = Json::object();
  for (const auto& [kind, us] : stages_of(row, row.program, constants)) {
    stages[kind] = std::round(us * 100) / 100;
    if (const auto at = row.stages_us.find(kind); at != row.stages_us.end()) ratios[kind] = std::round(us / at->second * 100) / 100;
  }
  Json line = {{"model", row.model}, {"config", row.name}, {"stages_us", stages}};
  if (!ratios.empty()) line["over_traced"] = ratios;
  std::cout << line.dump() << "\n";
}

struct Named {
  std::string name;
  Point point;
};

// See the top of this file.
Status print_sample(const GpuTarget& target, const Resources& resources, const std::string& model, const std::string& file, int count, int seed) {
  AMK_TRY(ref, resolve_model(model, ModelSources::from_environment(resources.config())));
  const SearchSpace space = megakernel_space(ref.spec, target, 1, Choices::All);
  std::ifstream in(file);
  if (!in) return fail(ErrorKind::NotFound, "cannot read " + file);
  std::vector<Named> bases;
  for (std::string line; std::getline(in, line);) {
    AMK_TRY(json, parse_json(line, file));
    AMK_TRY(config, parse_schedule_config(json.at("config")));
    AMK_TRY(point, point_of(space, config));
    bases.push_back({json.at("name").get<std::string>(), point});
  }
  if (bases.empty()) return fail(ErrorKind::InvalidArgument, file + " names no config");
  const auto cost = [&](const Point& point) {
    LoweringTarget lowering;
    lowering.sm_count = target.sm_count;
    lowering.smem_optin_bytes = target.smem_optin_bytes;
    lowering.max_seq = 512;
    Row row;
    row.config = config_at(space, point);
    row.position = 256;
    row.timed_at = {row.position};
    row.target = target;
    auto program = lower(ref.spec, row.config, lowering, gpu_format(ref.spec.dtype));
    if (!program) return 1e12;
    row.program = std::move(*program);
    return predicted_us(row, CostConstants{});
  };
  const auto print = [&](const std::string& name, const Point& point) {
    std::cout << Json{{"name", name}, {"config", to_json(config_at(space, point))}, {"predicted_us", std::round(cost(point) * 10) / 10}}.dump()
              << "\n";
  };
  double best = cost(bases.front().point);
  for (const Named& base : bases) print(base.name, base.point);
  const Named& first = bases.front();
  const auto moves = [&](const Point& from, const Point& to) {
    std::string name;
    for (std::size_t k = 0; k < from.size(); ++k)
      if (from[k] != to[k]) name += (name.empty() ? "" : ", ") + space.knobs[k].name + " = " + space.knobs[k].choices[to[k]].dump();
    return name;
  };
  for (const Point& point : neighbours(space, first.point)) {
    const double us = cost(point);
    best = std::min(best, us);
    if (us < 2 * cost(first.point)) print(moves(first.point, point), point);
  }
  Rng rng(static_cast<std::uint64_t>(seed));
  std::set<Point> seen;
  for (int tries = 0; count > 0 && tries < 100000; ++tries) {
    const Named& base = bases[rng.below(bases.size())];
    Point point = base.point;
    for (std::uint64_t n = 2 + rng.below(3); n > 0;) {
      const std::size_t k = rng.below(point.size()), c = rng.below(space.knobs[k].choices.size());
      if (point[k] != base.point[k] || base.point[k] == c || space.knobs[k].name.starts_with("kernel_knobs.cpa")) continue;
      point[k] = static_cast<std::uint16_t>(c);
      --n;
    }
    if (space.violated(point) != nullptr || !seen.insert(point).second || cost(point) > 1.15 * best) continue;
    print(base.name + ": " + moves(base.point, point), point);
    --count;
  }
  return {};
}

Status run(std::map<std::string, std::string> args) {
  const std::string gpu = args.count("--gpu") != 0 ? args["--gpu"] : "h200";
  AMK_TRY(resources, find_resources());
  AMK_TRY(target, load_gpu_target(gpu, resources.config() / "gpus"));
  if (args.count("--sample") != 0)
    return print_sample(target, resources, args["--sample"], args["--from"], std::atoi(args["--count"].c_str()), std::atoi(args["--seed"].c_str()));
  std::vector<std::string> paths{args["--measured"]};
  if (paths.front().empty()) {
    const std::string measured = std::string(AMK_SOURCE_DIR) + "/bench/cost_model/measured/" + gpu;
    paths = {measured + ".jsonl", measured + "-searches.jsonl"};
  }
  AMK_TRY(rows, read_rows(paths, target, resources));
  CostConstants constants;
  if (args.count("--fit") != 0 && args.count("--folds") == 0) {
    constants = fit(rows, std::atoi(args["--fit"].c_str()), args["--only"]);
    Json line = Json::object();
    for (const Constant& c : kConstants) line[c.name] = constants.*c.member;
    std::cout << Json{{"bench", "cost_model"}, {"constants", line}}.dump() << "\n";
  }
  std::vector<double> held_out;
  if (const int folds = std::atoi(args["--folds"].c_str()); folds > 1) {
    held_out.resize(rows.size());
    for (int fold = 0; fold < folds; ++fold) {
      std::vector<bool> used;
      for (std::size_t i = 0; i < rows.size(); ++i) used.push_back(static_cast<int>(i % static_cast<std::size_t>(folds)) != fold);
      const CostConstants fitted = fit(rows, std::max(1, std::atoi(args["--fit"].c_str())), args["--only"], used);
      for (std::size_t i = 0; i < rows.size(); ++i)
        if (!used[i]) held_out[i] = predicted_us(rows[i], fitted);
    }
  }
  std::map<std::string, std::vector<std::pair<double, double>>> by_model;  // measured, predicted
  for (const Row& row : rows) {
    if (args.count("--stages") != 0 && (by_model.count(row.group) == 0 || !row.stages_us.empty())) print_stages(row, constants);
    const double us = held_out.empty() ? predicted_us(row, constants) : held_out[static_cast<std::size_t>(&row - rows.data())];
    by_model[row.group].emplace_back(row.measured_us, us);
    std::cout << Json{{"model", row.model},
                      {"config", row.name},
                      {"measured_us", row.measured_us},
                      {"predicted_us", std::round(us * 10) / 10},
                      {"ratio", std::round(us / row.measured_us * 1000) / 1000}}
                     .dump()
              << "\n";
  }
  for (const auto& [model, pairs] : by_model) {
    std::vector<double> measured, predicted, errors;
    for (const auto& [m, p] : pairs) {
      measured.push_back(m);
      predicted.push_back(p);
      errors.push_back(std::abs(std::log(p / m)));
    }
    const auto liked = static_cast<std::size_t>(std::min_element(predicted.begin(), predicted.end()) - predicted.begin());
    std::cout << Json{{"bench", "cost_model"},
                      {"model", model},
                      {"gpu", gpu},
                      {"rows", pairs.size()},
                      {"rank_correlation", std::round(rank_correlation(measured, predicted) * 1000) / 1000},
                      {"median_error", std::round(median(errors) * 1000) / 1000},
                      {"worst_error", std::round(*std::max_element(errors.begin(), errors.end()) * 1000) / 1000},
                      {"likes_best_is_slower_by",
                       std::round((measured[liked] / *std::min_element(measured.begin(), measured.end()) - 1) * 1000) / 1000}}
                     .dump()
              << "\n";
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> args;
  for (int i = 1; i + 1 < argc; i += 2) args[argv[i]] = argv[i + 1];
  if (const Status status = run(std::move(args)); !status) return std::fprintf(stderr, "%s\n", to_json(status.error()).dump().c_str()), 3;
  return 0;
}
