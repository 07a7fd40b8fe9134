#include "tests/support/programs/mutation_suite.h"

#include <optional>

#include "core/base/json.h"
#include "core/program/validator.h"
#include "tests/support/programs/program_builder.h"
#include "tests/support/programs/random_program.h"

namespace amk::testing {

namespace {

struct Base {
  Program program;
  std::string what;
  Footprints footprints = Footprints::Trust;  // programs by hand have opcodes for show
  bool whole_device = false;
};

Base draw_base(Rng& rng, double whole_device_share) {
  if (rng.uniform() < 0.25) {
    SyntheticShape s;
    s.sms = 1 + static_cast<int>(rng.below(6));
    s.layers = 1 + static_cast<int>(rng.below(2));
    s.kv_heads = 1 + static_cast<int>(rng.below(2));
    s.rows = s.kv_heads * 4 * (1 + static_cast<int>(rng.below(6)));
    s.splits = 1 + static_cast<int>(rng.below(3));
    s.max_seq = 1 + static_cast<int>(rng.below(16));
    s.shared_pages = rng.below(4) != 0;
    s.ring = rng.below(4) != 0;
    s.step_sync = rng.below(2) == 0 ? StepSync::Launch : StepSync::Persistent;
    return {synthetic_decoder(s), s.step_sync == StepSync::Launch ? "by hand, launches" : "by hand, persistent"};
  }
  const bool whole_device = rng.uniform() < whole_device_share;
  RandomProgramLimits limits;
  limits.max_sms = whole_device ? 132 : 6;
  limits.max_hidden = whole_device ? 512 : 48;
  for (;;)
    if (std::optional<RandomProgram> drawn = random_program(rng, limits))
      return {std::move(drawn->program), to_json(drawn->config).dump(), Footprints::Check, whole_device};
}

std::string describe(const Found& found) {
  std::string out =
      found.breakage.kind + ": " + found.breakage.what + " (position " + std::to_string(found.position) + ", epoch " + std::to_string(found.epoch);
  if (found.schedule.held != kNone)
    out += ", task " + std::to_string(found.schedule.held) + " held before phase " + std::to_string(static_cast<int>(found.schedule.before));
  return out + ", schedule " + std::to_string(found.schedule.seed) + ")";
}

}  // namespace

KindCount SuiteResult::total() const {
  KindCount out;
  for (const KindCount& k : kinds) {
    out.mutants += k.mutants;
    out.rejected += k.rejected;
    out.rejected_broken += k.rejected_broken;
    out.wrong_footprint += k.wrong_footprint;
    out.accepted_unbroken += k.accepted_unbroken;
    out.false_accepts += k.false_accepts;
  }
  return out;
}

SuiteResult run_suite(const SuiteOptions& options) {
  SuiteResult out;
  Rng rng(options.seed);
  const auto complain = [&](const std::string& text) {
    if (options.complain) options.complain(text);
  };
  std::int64_t done = 0;
  while (done < options.mutants) {
    const Base base = draw_base(rng, options.whole_device_share);
    ++out.programs;
    if (const Validation v = validate(base.program, base.footprints); !v.valid()) {
      ++out.false_rejects;
      complain("false reject of " + base.what + ": " + to_json(*v.rejection).dump());
      continue;
    }
    AdversaryOptions gentle = options.accepted;
    gentle.hold_every_task = !base.whole_device;
    if (const auto found = find_break(base.program, rng, gentle, &out.schedules)) {
      ++out.broken_bases;
      complain("a valid program breaks, " + base.what + ": " + describe(*found));
      continue;
    }
    for (int i = 0; i < options.mutants_per_program && done < options.mutants; ++i) {
      const auto kind = static_cast<Mutation>(rng.below(kMutations));
      const std::optional<Mutant> mutant = mutate(base.program, kind, rng);
      if (!mutant) continue;
      ++done;
      KindCount& count = out.kinds[static_cast<std::size_t>(kind)];
      ++count.mutants;
      const Validation v = validate(mutant->program, Footprints::Trust);
      AdversaryOptions effort = v.valid() ? options.accepted : options.rejected;
      effort.suspects = mutant->suspects;
      effort.hold_every_task = effort.hold_every_task && !base.whole_device;
      const std::optional<Found> found = find_break(mutant->program, rng, effort, &out.schedules);
      if (!v.valid()) {
        ++count.rejected;
        count.rejected_broken += found ? 1 : 0;
      } else if (found) {
        ++count.false_accepts;
        complain("false accept, " + std::string(to_string(kind)) + " in " + base.what + ": " + describe(*found));
      } else if (!validate(mutant->program, base.footprints).valid()) {
        ++count.wrong_footprint;
      } else {
        ++count.accepted_unbroken;
      }
    }
  }
  return out;
}

std::string markdown_table(const SuiteResult& result) {
  std::string out =
      "| mutation | mutants | rejected by the proof | of these broken by the adversary | wrong footprint | accepted, unbroken | false accepts |\n"
      "| --- | --: | --: | --: | --: | --: | --: |\n";
  const auto row = [&](std::string_view name, const KindCount& k) {
    out += "| " + std::string(name);
    for (const std::int64_t n : {k.mutants, k.rejected, k.rejected_broken, k.wrong_footprint, k.accepted_unbroken, k.false_accepts})
      out += " | " + std::to_string(n);
    out += " |\n";
  };
  for (int m = 0; m < kMutations; ++m) row(to_string(static_cast<Mutation>(m)), result.kinds[static_cast<std::size_t>(m)]);
  row("all", result.total());
  return out;
}

}  // namespace amk::testing
