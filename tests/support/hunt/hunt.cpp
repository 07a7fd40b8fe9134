#include "tests/support/hunt/hunt.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/json.h"
#include "core/model/quantise.h"
#include "core/model/seeded.h"
#include "core/program/lower_instruction.h"
#include "core/program/validator.h"
#include "core/reference/reference_vm.h"
#include "tests/support/programs/adversary.h"
#include "tests/support/programs/damage.h"
#include "tests/support/programs/random_program.h"

namespace amk::testing {

namespace {

struct Base {
  Program program;
  std::string what;
  std::shared_ptr<const Weights> weights;
  bool whole_step = true;
};

std::shared_ptr<const Weights> weights_of(const ModelSpec& spec, std::uint64_t seed) {
  ModelSpec stored = spec;
  stored.weight_format = WeightFormat::Stored;
  Result<std::shared_ptr<const Weights>> weights = generate_weights(stored, seed, 1);
  if (weights && spec.weight_format == WeightFormat::Int8) weights = quantise_weights(std::move(*weights), spec.name, 1);
  return weights ? *weights : nullptr;
}

Base draw_base(Rng& rng) {
  RandomProgramLimits limits;
  limits.max_sms = 6;
  limits.max_hidden = 40;
  limits.max_positions = 200;
  for (;;) {
    std::optional<RandomProgram> drawn = random_program(rng, limits);
    if (!drawn) continue;
    Base base{std::move(drawn->program), to_json(drawn->config).dump(), weights_of(drawn->spec, rng.next()), true};
    if (base.weights == nullptr) continue;
    if (rng.below(4) != 0) return base;
    // One instruction of it alone, as tune-instruction has it.
    const auto ops = instruction_ops();
    const std::string op(ops[rng.below(ops.size())]);
    ScheduleConfig config = drawn->config;
    config.fusion.combine_o = false;
    if (config.kernel.publish == Publish::Flagged) config.kernel.publish = Publish::Release;
    config.kernel.tokens_per_launch = 1;
    LoweringTarget target;
    target.sm_count = 1 + static_cast<int>(rng.below(6));
    target.smem_optin_bytes = 232448;
    target.max_seq = 1 + static_cast<int>(rng.below(200));
    NumericFormat format;
    format.weights = drawn->spec.dtype;
    format.activations = rng.below(2) == 0 ? DType::F32 : DType::BF16;
    format.kv = rng.below(2) == 0 ? DType::F32 : DType::BF16;
    Result<Program> part = lower_instruction(drawn->spec, op, config, target, format);
    if (!part) continue;
    base.program = std::move(*part);
    base.what = op + " of " + to_json(config).dump();
    base.whole_step = false;
    return base;
  }
}

using Numbers = std::vector<float>;

// The numbers that a program leaves: logits, tokens and the cache of a few steps, or all that an instruction writes.
class Runner {
 public:
  Runner(const Base& base, Rng& rng) : base_(base) {
    const Program& p = base.program;
    seed_ = rng.next();
    steps_ = std::min(p.step_sync == StepSync::Persistent ? 3 : 2, p.max_seq);
    // From the start, or with rows behind it, or where a split wakes up; of a batch each sequence at a place of its own.
    const int last = p.max_seq - steps_;
    for (int seq = 0; seq < p.batch; ++seq) {
      int first = 0;
      if (rng.below(3) != 0) first = static_cast<int>(rng.below(static_cast<std::uint64_t>(last) + 1));
      if (rng.below(3) == 0) first = std::clamp(p.attention.kv_block - 1, 0, last);
      first_.push_back(seq > 0 && rng.below(3) == 0 ? first_[0] : first);
    }
    read_.assign(p.buffers.size(), false);
    for (const Task& task : p.tasks)
      for (const Region& region : task.reads) read_[static_cast<std::size_t>(region.buffer)] = true;
    for (int i = 0; i < p.batch * steps_; ++i) tokens_.push_back(static_cast<int>(rng.below(static_cast<std::uint64_t>(p.model.vocab))));
  }

  // Fewer steps or positions may be promised, as long as they are right.
  bool promised(const Program& p) const { return p.max_steps >= steps_ && p.max_seq >= *std::max_element(first_.begin(), first_.end()) + steps_; }

  Result<Numbers> run(const Program& p, std::uint64_t interleaving) const {
    AMK_TRY(vm, ReferenceVm::create(p, base_.weights, {interleaving, true}));
    Numbers out;
    if (base_.whole_step) {
      AMK_CHECK(whole_steps(p, vm, out));
      AMK_CHECK(read(vm, {Space::Kv}, out));
    } else {
      AMK_CHECK(fill(vm));
      AMK_CHECK(vm.run(first_[0]));
      AMK_CHECK(read(vm, {Space::Activation, Space::Output, Space::Kv}, out));  // what no task reads, of activations
    }
    return out;
  }

 private:
  Status whole_steps(const Program& p, ReferenceVm& vm, Numbers& out) const {
    const ModelSpec& spec = p.model;
    std::vector<float> rows(static_cast<std::size_t>(spec.kv_heads) * static_cast<std::size_t>(p.max_seq) * static_cast<std::size_t>(spec.head_dim));
    for (int seq = 0; seq < p.batch; ++seq)
      AMK_CHECK(vm.seed_kv(first_[static_cast<std::size_t>(seq)], p.max_seq, cache_rows(rows, 1, seq), cache_rows(rows, 2, seq), seq));
    const auto keep = [&](const std::vector<ReferenceVm::Step>& all) {
      for (const ReferenceVm::Step& step : all) {
        out.insert(out.end(), step.logits.begin(), step.logits.end());
        out.push_back(static_cast<float>(step.next_token));
      }
    };
    if (p.step_sync == StepSync::Persistent) {
      AMK_TRY(all, vm.launch(std::span<const int>(tokens_).first(static_cast<std::size_t>(p.batch)), steps_));
      keep(all);
      return {};
    }
    for (int i = 0; i < steps_; ++i) {
      AMK_TRY(all, vm.step(std::span<const int>(tokens_).subspan(static_cast<std::size_t>(i * p.batch), static_cast<std::size_t>(p.batch))));
      keep(all);
    }
    return {};
  }

  ReferenceVm::LayerCache cache_rows(std::vector<float>& rows, std::uint64_t which, int seq) const {
    return [this, &rows, which, seq](int layer) {
      Rng rng(mix64(seed_ + which * 1000 + static_cast<std::uint64_t>(layer) * 10 + static_cast<std::uint64_t>(seq)));
      for (float& x : rows) x = static_cast<float>(rng.uniform()) - 0.5f;
      return std::span<const float>(rows);
    };
  }

  // What the undamaged program calls an input, under its name.
  Status fill(ReferenceVm& vm) const {
    for (std::size_t b = 0; b < base_.program.buffers.size(); ++b) {
      const Buffer& buffer = base_.program.buffers[b];
      if (buffer.space != Space::Input || buffer.dtype == DType::I32) continue;
      Rng rng(mix64(seed_ + b));
      std::vector<float> values(static_cast<std::size_t>(buffer.bytes / dtype_bytes(buffer.dtype)));
      for (float& x : values) x = static_cast<float>(rng.uniform()) - 0.5f;
      AMK_CHECK(vm.set(buffer.name, 0, values));
    }
    return {};
  }

  Status read(const ReferenceVm& vm, std::initializer_list<Space> spaces, Numbers& out) const {
    for (std::size_t b = 0; b < base_.program.buffers.size(); ++b) {
      const Buffer& buffer = base_.program.buffers[b];
      if (buffer.dtype == DType::I32 || std::find(spaces.begin(), spaces.end(), buffer.space) == spaces.end()) continue;
      if (buffer.space == Space::Activation && read_[b]) continue;
      AMK_TRY(values, vm.get(buffer.name, 0, buffer.bytes / dtype_bytes(buffer.dtype)));
      out.insert(out.end(), values.begin(), values.end());
    }
    return {};
  }

  const Base& base_;
  std::uint64_t seed_ = 0;
  int steps_ = 1;
  std::vector<int> first_;  // [sequence]: position of the first step
  std::vector<int> tokens_;
  std::vector<bool> read_;  // [buffer]
};

enum class Likeness { Bits, Rounding, Other };

Likeness compare(const Numbers& a, const Numbers& b) {
  if (a.size() != b.size()) return Likeness::Other;
  if (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0) return Likeness::Bits;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (!(std::abs(a[i] - b[i]) <= 2e-5f * std::max({1.0f, std::abs(a[i]), std::abs(b[i])}))) return Likeness::Other;
  }
  return Likeness::Rounding;
}

std::string model_text(const Program& p) {
  return to_json(p.model).dump() + ", " + std::to_string(p.sm_count) + " SMs, max_seq " + std::to_string(p.max_seq) + ", batch " +
         std::to_string(p.batch);
}

std::string describe(const Found& found) {
  return found.breakage.kind + ": " + found.breakage.what + " (position " + std::to_string(found.position) + ", epoch " +
         std::to_string(found.epoch) + ", task " + std::to_string(found.schedule.held) + " held)";
}

class Hunt {
 public:
  explicit Hunt(const HuntOptions& options) : options_(options), rng_(options.seed) {}

  HuntResult run() {
    const auto begin = std::chrono::steady_clock::now();
    const auto over = [&] {
      return out_.mutants >= options_.mutants ||
             (options_.seconds > 0 && std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > options_.seconds);
    };
    while (!over()) {
      const Base base = draw_base(rng_);
      base_ = &base;
      ++(base.whole_step ? out_.programs : out_.instructions);
      const Runner runner(base, rng_);
      const std::optional<Numbers> right = undamaged(runner);
      for (int i = 0; right && i < options_.mutants_per_program && !over(); ++i) mutant(runner, *right);
    }
    return std::move(out_);
  }

 private:
  void complain(const std::string& text) {
    if (options_.complain) options_.complain(text + "\n  of " + base_->what + "\n  of " + model_text(base_->program));
  }

  std::optional<Numbers> undamaged(const Runner& runner) {
    if (const Validation v = validate(base_->program); !v.valid()) {
      ++out_.false_rejects;
      complain("false reject: " + to_json(*v.rejection).dump());
      return std::nullopt;
    }
    Result<Numbers> first = runner.run(base_->program, rng_.next());
    const Result<Numbers> second = runner.run(base_->program, rng_.next());
    if (first && second && compare(*first, *second) == Likeness::Bits) return std::move(*first);
    ++out_.broken_bases;
    complain("an undamaged program does not run, or not twice alike: " +
             (first && second ? std::string("two results") : (first ? second : first).error().message));
    return std::nullopt;
  }

  // One element type for another throughout is what lowering makes for another numeric format.
  bool reformatted(const Program& p) const {
    for (std::size_t b = 0; b < p.buffers.size() && b < base_->program.buffers.size(); ++b)
      if (p.buffers[b].dtype != base_->program.buffers[b].dtype) return true;
    return false;
  }

  void mutant(const Runner& runner, const Numbers& right) {
    const Damaged damaged = damage(base_->program, rng_);
    ++out_.mutants;
    const Validation v = validate(damaged.program);
    if (!v.valid()) {
      ++out_.refused[v.rejection->rule];
      return;
    }
    Likeness worst = Likeness::Bits;
    for (int i = 0; i < 3 && runner.promised(damaged.program); ++i) {
      const Result<Numbers> got = runner.run(damaged.program, rng_.next());
      if (!got) {
        ++out_.stuck;
        return complain("accepted, and the VM refuses: " + damaged.what + ": " + got.error().message);
      }
      worst = std::max(worst, compare(right, *got));
    }
    if (worst == Likeness::Other && reformatted(damaged.program)) {
      ++out_.reformatted;
      return;
    }
    if (worst == Likeness::Other) {
      ++out_.differ;
      return complain("accepted, and computes something else: " + damaged.what);
    }
    AdversaryOptions effort;
    effort.suspects = damaged.suspects;
    effort.hold_every_task = rng_.below(4) == 0;
    if (const std::optional<Found> found = find_break(damaged.program, rng_, effort)) {
      ++out_.races;
      return complain("accepted, and broken: " + damaged.what + ": " + describe(*found));
    }
    ++(worst == Likeness::Bits ? out_.same : out_.rounding);
    if (worst == Likeness::Rounding) complain("accepted, and the same but for rounding: " + damaged.what);
  }

  const HuntOptions& options_;
  Rng rng_;
  const Base* base_ = nullptr;
  HuntResult out_;
};

}  // namespace

HuntResult hunt(const HuntOptions& options) { return Hunt(options).run(); }

}  // namespace amk::testing
