#include "bench/decode/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/random.h"
#include "core/reference/forward.h"
#include "core/reference/native.h"
#include "kernels/megakernel/checked_run.h"

namespace amk::bench {

Result<Reference> make_reference(const std::shared_ptr<const Weights>& weights, int tokens, int max_seq, bool native) {
  Reference r;
  Rng rng(12345);
  Oracle oracle(weights, max_seq);
  NativeForward low(weights, max_seq);
  double sum = 0;
  for (int i = 0; i < tokens; ++i) {
    r.tokens.push_back(static_cast<int>(rng.below(static_cast<std::uint64_t>(weights->spec().vocab))));
    AMK_TRY(logits, oracle.step(r.tokens.back()));
    r.oracle.emplace_back(logits.begin(), logits.end());
    if (!native) continue;
    AMK_TRY(low_logits, low.step(r.tokens.back()));
    for (std::size_t j = 0; j < low_logits.size(); ++j) {
      const double e = std::abs(low_logits[j] - logits[j]);
      r.native_max = std::max(r.native_max, e);
      sum += e;
    }
    r.native_agree += argmax(low_logits) == argmax(logits) ? 1 : 0;
  }
  r.native_mean = sum / std::max(1, tokens) / weights->spec().vocab;
  return r;
}

Status check(GpuModel& model, Entry& e, const Reference& reference) {
  const auto& seq = model.sequence();
  const auto& stream = model.stream();
  AMK_CHECK(seq.set_tokens(reference.tokens, 0, stream));
  std::vector<std::vector<float>> first;
  double sum = 0;
  for (int turn = 0; turn < 2; ++turn) {
    AMK_CHECK(seq.poison_kv(stream));
    StepOptions options;
    const std::size_t in_launch = static_cast<std::size_t>(e.program->plan().steps), count = reference.tokens.size();
    for (std::size_t i = 0; i < count; ++i) {
      const int row = static_cast<int>(i % in_launch);
      if (row == 0) {
        AMK_CHECK(seq.poison_outputs(stream));
        AMK_CHECK(e.program->poison_activations(stream));
        options.position = static_cast<int>(i);
        options.steps = static_cast<int>(std::min(in_launch, count - i));
        AMK_CHECK(model.run(*e.program, options));
      }
      AMK_TRY(logits, seq.read_logits(stream, 0, row));
      AMK_TRY(next, seq.read_next_token(stream, 0, row));
      if (turn == 1) {
        if (std::memcmp(logits.data(), first[i].data(), logits.size() * 4) != 0) e.repeatable = false;
        continue;
      }
      for (std::size_t j = 0; j < logits.size(); ++j) {
        if (!std::isfinite(logits[j])) e.written = false;
        const double err = std::isfinite(logits[j]) ? std::abs(logits[j] - reference.oracle[i][j]) : 1e30;
        e.max_abs = std::max(e.max_abs, err);
        sum += err;
      }
      if (next != argmax(logits)) e.written = false;
      e.agree += next == argmax(reference.oracle[i]) ? 1 : 0;
      ++e.checked;
      first.push_back(std::move(logits));
    }
  }
  e.mean_abs = sum / std::max(1, e.checked) / model.spec().vocab;
  AMK_TRY(damage, seq.damaged_guards(stream));
  AMK_TRY(damage2, e.program->damaged_guards(stream));
  if (damage + damage2 != 0) e.error = "guard bytes damaged: " + std::to_string(damage + damage2);
  return {};
}

Status check_batch(GpuModel& model, Entry& e, Entry* alone, int tokens) {
  std::vector<SequenceRun> sequences;
  for (int s = 0; s < e.batch; ++s) {
    Rng rng(777 + static_cast<std::uint64_t>(s));
    SequenceRun& run = sequences.emplace_back();
    for (int i = 0; i < tokens; ++i) run.tokens.push_back(static_cast<int>(rng.below(static_cast<std::uint64_t>(model.spec().vocab))));
    run.delay = 5 * s;
  }
  AMK_TRY(first, run_checked_batch(model, *e.program, sequences));
  AMK_TRY(second, run_checked_batch(model, *e.program, sequences));
  e.repeatable = first.steady && second.steady;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    e.repeatable = e.repeatable && first.sequences[s].hashes == second.sequences[s].hashes;
    e.written = e.written && first.sequences[s].unwritten == 0 && first.sequences[s].not_finite == 0;
    if (alone == nullptr || !alone->program) continue;
    AMK_TRY(single, run_checked(model, *alone->program, sequences[s].tokens, {}, static_cast<int>(s)));
    for (std::size_t p = 0; p < single.hashes.size(); ++p) e.agree += single.hashes[p] == first.sequences[s].hashes[p] ? 1 : 0;
    e.checked += static_cast<int>(single.hashes.size());
  }
  AMK_TRY(damage, model.sequence().damaged_guards(model.stream()));
  AMK_TRY(more, e.program->damaged_guards(model.stream()));
  if (damage + more != 0) e.error = "guard bytes damaged: " + std::to_string(damage + more);
  if (e.agree != e.checked) e.error = "a sequence of the batch has not the bits that it has alone";
  return {};
}

}  // namespace amk::bench
