#include "tests/gpu/megakernel/runs.h"

#include <algorithm>
#include <cstring>

#include "core/base/random.h"
#include "kernels/evaluator/build_cache.h"
#include "kernels/megakernel/checked_run.h"

namespace amk::gpu_test {

std::vector<int> draw(const ModelSpec& spec, int count, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<int> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<int>(rng.below(static_cast<std::uint64_t>(spec.vocab))));
  return tokens;
}

Result<DeviceProgram> program_of(GpuModel& model, const ScheduleConfig& config, const PlanOptions& options) {
  AMK_TRY(built, model.build(config, options));
  return model.load(built);
}

Result<cuda::Module> module_of(const Bench& bench, const char* name, const char* source) {
  AMK_TRY(compiler, NvrtcCompiler::open());
  AMK_TRY(cache, BuildCache::open(bench.cache));
  CompileRequest request;
  request.name = name;
  request.source = source;
  request.options = {"-std=c++17"};
  request.architecture = limits_of(bench.device).architecture;
  AMK_TRY(built, cache.build(compiler, request));
  return cuda::Module::load(built.kernel.cubin);
}

PlanOptions full_barriers() {
  PlanOptions options;
  options.full_barriers = true;
  return options;
}

bool keeps_to_buffers(const GpuModel& model, const DeviceProgram& program) {
  const auto guards = model.sequence().damaged_guards(model.stream());
  const auto more = program.damaged_guards(model.stream());
  return guards && more && *guards + *more == 0;
}

void gate(GpuModel& model, const GpuReference& reference, const ScheduleConfig& config, const PlanOptions& options, const std::string& name,
          Checks& checks) {
  auto program = program_of(model, config, options);
  if (!checks.check(program, name + " builds")) return;
  const auto first = run_checked(model, *program, reference.tokens(), reference.positions());
  if (!checks.check(first, name + " runs")) return;
  const auto second = run_checked(model, *program, reference.tokens(), {});
  if (!checks.check(second, name + " runs again")) return;
  std::vector<int> next;
  for (const int p : reference.positions()) next.push_back(first->next_tokens[static_cast<std::size_t>(p)]);
  const auto outcome = reference.compare(first->logits, next, first->hashes == second->hashes);
  checks.check(outcome.correct, name + " is correct: " + outcome.failure);
  checks.check(first->unwritten == 0 && first->not_finite == 0, name + " writes every output");
  checks.check(keeps_to_buffers(model, *program), name + " keeps to its buffers");
  const auto layout = model.layout_weights(program->plan().layout);
  checks.check(layout && (*layout)->intact(model.stream()).value_or(false), name + " leaves the weights alone");
}

void gate(GpuModel& model, const GpuReference& reference, const ScheduleConfig& config, const std::string& name, Checks& checks) {
  gate(model, reference, config, {}, name, checks);
}

std::shared_ptr<const GpuReference> reference_of(const GpuModel& model, int max_seq, Checks& checks) {
  const auto plan = GpuReference::plan(model.spec(), std::min(max_seq, model.spec().max_position), 11);
  auto reference = GpuReference::create(model.weights(), plan, 5, {});
  checks.check(reference, "reference of " + model.spec().name);
  return reference ? *reference : nullptr;
}

bool decode_twice(GpuModel& model, const std::string& label, const ScheduleConfig& config, int tokens, Checks& checks) {
  auto program = program_of(model, config);
  if (!checks.check(program, label + " builds")) return true;
  std::vector<std::vector<int>> ids_of;
  std::vector<std::vector<float>> logits_of;
  for (int run = 0; run < 2; ++run) {
    checks.check(model.sequence().poison_kv(model.stream()), "cache poisoned");
    checks.check(model.sequence().set_tokens(std::vector<int>{7}, 0, model.stream()), "tokens set");
    for (int p = 0; p < tokens; ++p) {
      if (!checks.check(model.enqueue(*program, {p, true}), "step enqueued")) return false;
    }
    checks.check(program->check(model.stream()), "no launch ran out of time");
    auto ids = model.sequence().read_tokens(0, tokens + 1, model.stream());
    auto logits = model.sequence().read_logits(model.stream());
    if (!checks.check(ids, "tokens read") || !checks.check(logits, "logits read")) return false;
    ids_of.push_back(std::move(*ids));
    logits_of.push_back(std::move(*logits));
  }
  checks.check(ids_of[0] == ids_of[1], label + ": " + std::to_string(tokens) + " tokens are the same twice");
  checks.check(std::memcmp(logits_of[0].data(), logits_of[1].data(), logits_of[0].size() * sizeof(float)) == 0,
               label + ": the last logits are the same in every bit");
  return true;
}

void writes_all(GpuModel& model, const ScheduleConfig& config, const PlanOptions& options, const std::vector<int>& tokens, const std::string& name,
                Checks& checks) {
  auto program = program_of(model, config, options);
  if (!checks.check(program, name)) return;
  program->set_budget_us(60e6);
  const auto run = run_checked(model, *program, tokens, {});
  if (checks.check(run, name)) checks.check(run->unwritten == 0 && run->not_finite == 0, "all written: " + name);
}

}  // namespace amk::gpu_test
