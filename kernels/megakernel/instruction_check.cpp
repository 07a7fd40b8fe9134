#include "kernels/megakernel/instruction_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/base/hash.h"
#include "core/base/number_text.h"
#include "core/base/random.h"
#include "core/program/lower_instruction.h"
#include "core/reference/forward.h"
#include "kernels/megakernel/gpu_gate.h"
#include "kernels/megakernel/logit_distance.h"

namespace amk {
namespace {

struct Error2 {
  double most = 0, mean_square = 0, mean = 0;
};

Error2 error_of(std::span<const float> got, std::span<const float> expected) {
  Error2 out;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double e = std::abs(static_cast<double>(got[i]) - expected[i]);
    if (!std::isfinite(e)) {
      const double inf = std::numeric_limits<double>::infinity();
      return {inf, inf, inf};
    }
    out.most = std::max(out.most, e);
    out.mean_square += e * e;
    out.mean += e;
  }
  out.mean_square /= static_cast<double>(expected.size());
  out.mean /= static_cast<double>(expected.size());
  return out;
}

double rms(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// Nothing fused, few SMs, no ring: the plainest program of the kind.
Result<Program> plain_program(const ModelSpec& spec, std::string_view op, int max_seq, const NumericFormat& format) {
  ScheduleConfig config;
  config.fusion = Fusion{false, false, false, false, false, false, false, false, false};
  config.sm_assignment = SmAssignment::RoundRobin;
  config.smem_bytes_per_block = 0;
  config.attention_kv_block = 512;
  LoweringTarget target;
  target.sm_count = 1;
  target.max_seq = max_seq;
  return lower_instruction(spec, op, config, target, format);
}

}  // namespace

namespace {

// How often native attention is run for each draw: a handful of keys decides a head's output, so that one rounding of their weights may be a lucky
// one (docs/lab/megakernel.md, 34).
constexpr int kRoundings = 4;

// Native attention rounds each key's weight to the 2-byte format before it meets V: as if that key's V were so much larger or smaller. Half a unit in
// the last place at most, of a mantissa whose logarithm is anywhere.
void round_weights(std::vector<float>& rows, int head_dim, DType format, std::uint64_t seed) {
  Rng rng(seed);
  const double half_unit = format == DType::F16 ? 0x1p-11 : 0x1p-8;
  for (std::size_t row = 0; row + static_cast<std::size_t>(head_dim) <= rows.size(); row += static_cast<std::size_t>(head_dim)) {
    const double error = (2 * rng.uniform() - 1) * half_unit, mantissa = std::exp2(rng.uniform());
    for (int i = 0; i < head_dim; ++i) rows[row + static_cast<std::size_t>(i)] *= static_cast<float>(1 + error / mantissa);
  }
}

// `rounding`: which of the native runs; none: exact.
Result<std::vector<float>> run(ReferenceVm& vm, const Program& program, const InstructionDraw& draw, const NumericFormat& gpu,
                               std::optional<int> rounding) {
  for (const Slice& slice : input_slices(program, draw.position)) {
    std::vector<float> values = input_values(program, slice, draw, gpu);
    if (rounding && slice.values)
      round_weights(values, program.model.head_dim, gpu.weights,
                    mix64(draw.seed + static_cast<std::uint64_t>(slice.first)) + static_cast<std::uint64_t>(*rounding));
    AMK_CHECK(vm.set(slice.name, slice.first, values));
  }
  AMK_CHECK(vm.run(draw.position));
  std::vector<float> out;
  for (const Slice& slice : output_slices(program, draw.position)) {
    AMK_TRY(values, vm.get(slice.name, slice.first, slice.count));
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

// Inputs are multiplied in the weights' own 2-byte format, also where activations are stored wider; and what is given is rounded already, so that a
// wide cache holds the same numbers.
NumericFormat native_format(const NumericFormat& gpu, std::string_view op) {
  NumericFormat out = gpu;
  if (gpu.weights == DType::F16) out.activations = DType::F16;
  if (op == "attention") out.kv = DType::F32;
  return out;
}

}  // namespace

Result<std::vector<float>> run_on_vm(ReferenceVm& vm, const Program& program, const InstructionDraw& draw, const NumericFormat& gpu) {
  return run(vm, program, draw, gpu, std::nullopt);
}

Result<std::shared_ptr<const InstructionReference>> InstructionReference::create(const std::shared_ptr<const Weights>& weights, std::string_view op,
                                                                                 int max_seq, const NumericFormat& gpu,
                                                                                 std::vector<InstructionDraw> draws, const std::stop_token& stop) {
  if (draws.empty()) return fail(ErrorKind::Internal, "an instruction's reference needs at least one draw");
  auto out = std::make_shared<InstructionReference>();
  out->op_ = op;
  out->draws_ = std::move(draws);
  const ModelSpec& spec = weights->spec();
  int furthest = 0;
  for (const InstructionDraw& d : out->draws_) furthest = std::max(furthest, d.position);
  if (furthest >= max_seq) return fail(ErrorKind::Internal, "a draw lies beyond max_seq");
  const bool low = gpu.weights != DType::F32;
  for (const bool exact : {true, false}) {
    if (!exact && !low) continue;
    const NumericFormat format = exact ? NumericFormat{spec.dtype, DType::F32, DType::F32} : native_format(gpu, op);
    AMK_TRY(program, plain_program(spec, op, furthest + 1, format));
    AMK_TRY(vm, ReferenceVm::create(program, weights));
    for (std::size_t d = 0; d < out->draws_.size(); ++d)
      for (int rounding = 0; rounding < (!exact && op == "attention" ? kRoundings : 1); ++rounding) {
        if (stop.stop_requested()) return fail(ErrorKind::Cancelled, "cancelled while the reference ran");
        AMK_TRY(values, run(vm, program, out->draws_[d], gpu, exact ? std::nullopt : std::optional(rounding)));
        if (exact)
          out->expected_.push_back(std::move(values));
        else
          out->measure_native(d, values);
      }
    if (!exact) continue;
    std::size_t at = 0;  // heads of one cache are one segment: one head has few elements
    for (const Slice& s : output_slices(program, 0)) {
      const auto count = static_cast<std::size_t>(s.count);
      if (s.cache && !out->segments_.empty() && out->segments_.back().name == s.name)
        out->segments_.back().count += count;
      else
        out->segments_.push_back({s.name, at, count, 0, 0});
      at += count;
    }
  }
  return std::shared_ptr<const InstructionReference>(std::move(out));
}

void InstructionReference::measure_native(std::size_t draw, std::span<const float> native) {
  for (Segment& s : segments_) {
    const Error2 e = error_of(native.subspan(s.first, s.count), std::span(expected_[draw]).subspan(s.first, s.count));
    s.native_max = std::max(s.native_max, e.most);
    s.native_rms = std::max(s.native_rms, std::sqrt(e.mean_square));
  }
}

InstructionReference::Outcome InstructionReference::compare(std::span<const float> got, bool repeated) const {
  Outcome out;
  Correctness& c = out.correctness;
  c.bitwise_repeatable = repeated;
  const auto wrong = [&](std::string why) {
    if (out.failure.empty()) out.failure = std::move(why);
  };
  if (got.size() != draws_.size() * outputs()) {
    wrong("there are " + std::to_string(got.size()) + " output values, not " + std::to_string(draws_.size() * outputs()));
    return out;
  }
  double sum = 0;
  std::size_t agree = 0, slices = 0;
  for (std::size_t d = 0; d < draws_.size(); ++d) {
    for (const Segment& s : segments_) {
      const auto mine = got.subspan(d * outputs() + s.first, s.count);
      const auto expected = std::span(expected_[d]).subspan(s.first, s.count);
      const Error2 e = error_of(mine, expected);
      const double rounding = kSumRounding * rms(expected);
      const double most = kMostOver * s.native_max + rounding, usual = kGateMargin * s.native_rms + rounding;
      const std::string where = " in " + s.name + " at position " + std::to_string(draws_[d].position);
      if (!std::isfinite(e.most)) wrong("a value is not a number" + where);
      if (!(e.most <= most)) wrong("the largest error, " + with_digits(e.most, 4) + ", exceeds " + with_digits(most, 4) + where);
      if (!(std::sqrt(e.mean_square) <= usual))
        wrong("the usual error, " + with_digits(std::sqrt(e.mean_square), 4) + ", exceeds " + with_digits(usual, 4) + where);
      c.max_abs_err = std::max(c.max_abs_err, e.most);
      c.bound = std::max(c.bound, most);
      sum += e.mean * static_cast<double>(s.count);
      agree += std::max_element(mine.begin(), mine.end()) - mine.begin() == std::max_element(expected.begin(), expected.end()) - expected.begin();
      ++slices;
      if (s.name == "logits" && std::isfinite(e.most)) c.kl = std::max(c.kl, kl_divergence(expected, mine));
    }
    ++c.positions_checked;
  }
  c.mean_abs_err = sum / static_cast<double>(got.size());
  c.top1_agreement = static_cast<double>(agree) / static_cast<double>(slices);
  if (!repeated) wrong("two runs differ in their bits");
  out.correct = out.failure.empty();
  return out;
}

}  // namespace amk
