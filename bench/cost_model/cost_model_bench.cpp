// The cost model against what was measured. bench_cost_model [--gpu h200] [--measured FILE] [--fit SWEEPS] [--stages 1]
// --stages 1: of each model's first row, how far each kind of instruction moves the end of the step.
// FILE: one JSON object a line: {"model", "base": config, "knob" and "value" (one knob of the base moved; may be absent), "us", "position"}.
// Prints one JSON object a row, then one a model: Spearman's rank correlation, median and worst error, and how slow, measured, the config is that the
// model likes best. --fit: coordinate descent on the constants, or on those whose names begin with --only PREFIX; prints them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>

#include "core/base/json.h"
#include "core/base/parallel.h"
#include "core/base/parse_json.h"
#include "core/base/resources.h"
#include "core/base/stats.h"
#include "core/model/load.h"
#include "core/program/lower.h"
#include "core/target/cost_model.h"
#include "core/target/machine_rates.h"
#include "core/target/timeline.h"
#include "kernels/megakernel/gpu_layout.h"
#include "orchestrator/strategy/rank_correlation.h"

using namespace amk;

namespace {

struct Row {
  std::string model, name;
  ScheduleConfig config;
  Program program;
  double measured_us = 0, best_us = 0;  // best: the fastest row of the model
  int position = 0;
};

// The timeline and the launch: predict() without its floor and without the write-back of activations (under 1%).
double predicted_us(const Row& row, const GpuTarget& target, const CostConstants& constants) {
  const MachineRates rates = machine_rates(row.config, target, 0.0, constants);
  return simulate(row.program, rates, row.position - 1, kv_from_hbm(row.program, target, row.position, 0.0), true).end_us + rates.launch_us;
}

Result<std::vector<Row>> read_rows(const std::string& path, const GpuTarget& target, const Resources& resources) {
  std::vector<Row> rows;
  std::ifstream in(path);
  if (!in) return fail(ErrorKind::NotFound, "cannot read " + path);
  std::string line;
  while (std::getline(in, line)) {
    AMK_TRY(json, parse_json(line, path));
    Row row;
    row.model = json.at("model").get<std::string>();
    AMK_TRY(ref, resolve_model(row.model, ModelSources::from_environment(resources.config())));
    const SearchSpace space = megakernel_space(ref.spec, target);
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
    row.position = json.at("position").get<int>();
    row.measured_us = json.at("us").get<double>();
    LoweringTarget lowering;
    lowering.sm_count = target.sm_count;
    lowering.smem_optin_bytes = target.smem_optin_bytes;
    lowering.max_seq = 512;
    AMK_TRY(program, lower(ref.spec, config, lowering, gpu_format(ref.spec.dtype)));
    row.program = std::move(program);
    rows.push_back(std::move(row));
  }
  for (Row& row : rows) {
    row.best_us = row.measured_us;
    for (const Row& other : rows)
      if (other.model == row.model) row.best_us = std::min(row.best_us, other.measured_us);
  }
  return rows;
}

// What is near the best counts most: there a search decides.
double loss(const std::vector<Row>& rows, const GpuTarget& target, const CostConstants& constants) {
  std::vector<double> predicted(rows.size());
  ThreadPool().for_ranges(static_cast<std::int64_t>(rows.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      predicted[at] = predicted_us(rows[at], target, constants);
    }
  });
  double sum = 0, weights = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const double error = std::log(predicted[i] / row.measured_us);
    const double weight = std::pow(row.best_us / row.measured_us, 2);
    sum += weight * std::min(error * error, 0.25);
    weights += weight;
  }
  return sum / weights;
}

struct Constant {
  const char* name;
  double CostConstants::*member;
};
constexpr Constant kConstants[] = {{"launch_us", &CostConstants::launch_us},
                                   {"task_us", &CostConstants::task_us},
                                   {"task_us_per_warp", &CostConstants::task_us_per_warp},
                                   {"chunk_us", &CostConstants::chunk_us},
                                   {"norm_us", &CostConstants::norm_us},
                                   {"consume_bytes_per_clock_warp", &CostConstants::consume_bytes_per_clock_warp},
                                   {"shared_bytes_per_clock", &CostConstants::shared_bytes_per_clock},
                                   {"fma_share", &CostConstants::fma_share},
                                   {"attention_bytes_per_clock_warp", &CostConstants::attention_bytes_per_clock_warp},
                                   {"attention_us", &CostConstants::attention_us},
                                   {"l2_bytes_per_clock_sm", &CostConstants::l2_bytes_per_clock_sm},
                                   {"confirmed_hop", &CostConstants::confirmed_hop},
                                   {"flagged_hop", &CostConstants::flagged_hop},
                                   {"flagged_traffic", &CostConstants::flagged_traffic},
                                   {"max_load", &CostConstants::max_load},
                                   {"hop_scale", &CostConstants::hop_scale},
                                   {"hop_exponent", &CostConstants::hop_exponent},
                                   {"idle_hop_us", &CostConstants::idle_hop_us},
                                   {"registers_wanted", &CostConstants::registers_wanted},
                                   {"spill_exponent", &CostConstants::spill_exponent},
                                   {"load_latency_us", &CostConstants::load_latency_us},
                                   {"cpasync_share", &CostConstants::cpasync_share},
                                   {"slices_task_us", &CostConstants::slices_task_us},
                                   {"slices_group_us", &CostConstants::slices_group_us},
                                   {"slices_block_us", &CostConstants::slices_block_us},
                                   {"slices_hop", &CostConstants::slices_hop},
                                   {"slices_spill", &CostConstants::slices_spill}};

// `only`: constants whose names begin so; empty: all.
CostConstants fit(const std::vector<Row>& rows, const GpuTarget& target, int sweeps, const std::string& only) {
  CostConstants best;
  double lowest = loss(rows, target, best);
  double step = 1.4;
  for (int sweep = 0; sweep < sweeps; ++sweep, step = std::max(1.05, std::sqrt(step))) {
    for (const Constant& c : kConstants) {
      if (!std::string(c.name).starts_with(only)) continue;
      for (const double factor : {step, 1 / step}) {
        for (int moves = 0; moves < 4; ++moves) {
          CostConstants tried = best;
          tried.*c.member *= factor;
          const double value = loss(rows, target, tried);
          if (value >= lowest) break;
          lowest = value;
          best = tried;
        }
      }
    }
    std::fprintf(stderr, "sweep %d: root of the mean squared log error %.4f\n", sweep, std::sqrt(lowest));
  }
  return best;
}

// How far each kind of instruction moves the end of the step: medians over layers, as a trace shows them (docs/lab/megakernel.md).
void print_stages(const Row& row, const GpuTarget& target, const CostConstants& constants) {
  const Timeline timeline = simulate(row.program, machine_rates(row.config, target, 0.0, constants), row.position - 1,
                                     kv_from_hbm(row.program, target, row.position, 0.0), true);
  std::map<std::string, std::vector<double>> kinds;
  double reached = 0;
  for (std::size_t i = 0; i < row.program.instructions.size(); ++i) {
    const Instruction& instruction = row.program.instructions[i];
    const double end = std::max(reached, timeline.instruction_end_us[i]);
    kinds[instruction.name.substr(instruction.layer < 0 ? 0 : instruction.name.find('.') + 1)].push_back(end - reached);
    reached = end;
  }
  Json stages = Json::object();
  for (auto& [kind, us] : kinds) stages[kind] = std::round(median(us) * 100) / 100;
  std::cout << Json{{"model", row.model}, {"stages_us", stages}}.dump() << "\n";
}

Status run(std::map<std::string, std::string> args) {
  const std::string gpu = args.count("--gpu") != 0 ? args["--gpu"] : "h200";
  AMK_TRY(resources, find_resources());
  AMK_TRY(target, load_gpu_target(gpu, resources.config() / "gpus"));
  const std::string path =
      args.count("--measured") != 0 ? args["--measured"] : std::string(AMK_SOURCE_DIR) + "/bench/cost_model/measured/" + gpu + ".jsonl";
  AMK_TRY(rows, read_rows(path, target, resources));
  CostConstants constants;
  if (args.count("--fit") != 0) {
    constants = fit(rows, target, std::atoi(args["--fit"].c_str()), args["--only"]);
    Json line = Json::object();
    for (const Constant& c : kConstants) line[c.name] = constants.*c.member;
    std::cout << Json{{"bench", "cost_model"}, {"constants", line}}.dump() << "\n";
  }
  std::map<std::string, std::vector<std::pair<double, double>>> by_model;  // measured, predicted
  for (const Row& row : rows) {
    if (args.count("--stages") != 0 && by_model.count(row.model) == 0) print_stages(row, target, constants);
    const double us = predicted_us(row, target, constants);
    by_model[row.model].emplace_back(row.measured_us, us);
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
