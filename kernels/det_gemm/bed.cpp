#include "kernels/det_gemm/bed.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/random.h"
#include "core/base/stats.h"
#include "kernels/det_gemm/bf16.h"
#include "kernels/det_gemm/defaults.h"
#include "kernels/det_gemm/error_bound.h"

namespace amk::det_gemm {
namespace {

constexpr std::size_t kGuardBytes = 1024;  // on both sides of every output
constexpr unsigned char kGuardByte = 0xA5;
constexpr unsigned char kPoisonByte = 0xFF;  // a NaN with a pattern that no kernel writes: results' NaN are 0x7FFF

std::size_t operand_bytes(std::int64_t lines, std::int64_t k) { return static_cast<std::size_t>(lines * k * 2); }

}  // namespace

Result<Bed> Bed::make(Runner& runner, const Problem& problem, std::uint64_t seed, std::int64_t rotate_bytes) {
  Bed bed(runner);
  bed.problem_ = problem;
  bed.shape_ = canonical(problem);
  const Canonical& s = bed.shape_;
  bed.out_bytes_ = s.m * s.n * (s.out == OutType::Bf16 ? 2 : 4);
  const std::int64_t count = std::clamp<std::int64_t>(rotate_bytes / std::max<std::int64_t>(compulsory_bytes(s), 1) + 1, 2, 32);
  for (std::int64_t i = 0; i < count; ++i) {
    AMK_TRY(x, cuda::Memory::allocate(operand_bytes(s.m, s.k)));
    AMK_TRY(y, cuda::Memory::allocate(operand_bytes(s.n, s.k)));
    AMK_TRY(out, cuda::Memory::allocate(static_cast<std::size_t>(bed.out_bytes_) + 2 * kGuardBytes));
    AMK_CHECK(cuda::fill_u8(out.pointer(), kGuardByte, out.bytes(), runner.stream()));
    bed.sets_.push_back({x.pointer(), y.pointer(), out.pointer() + kGuardBytes, 0});
    bed.seeds_.push_back(mix64(seed + static_cast<std::uint64_t>(i)));
    bed.draws_.push_back(Draw::Normal);
    bed.memory_.push_back(std::move(x));
    bed.memory_.push_back(std::move(y));
    bed.memory_.push_back(std::move(out));
    AMK_CHECK(bed.draw_operands(bed.sets_.back(), bed.seeds_.back(), Draw::Normal));
  }
  AMK_TRY(scratch, cuda::Memory::allocate(static_cast<std::size_t>(bed.out_bytes_)));
  bed.scratch_ = std::move(scratch);
  AMK_CHECK(bed.plain_result(bed.sets_[0], bed.reference_));
  return bed;
}

Status Bed::draw_operands(const Buffers& buffers, std::uint64_t seed, Draw draw) const {
  AMK_TRY(fill, runner_->helper("fill.cu", "det_gemm_fill"));
  const int spread = draw == Draw::Wide ? 10 : 0;
  const std::int64_t x = shape_.m * shape_.k, y = shape_.n * shape_.k;
  const cuda::Launch how{.grid = {1024}, .block = {256}, .cluster = {}};
  const std::uint64_t seed_y = ~seed;
  if (x > 0) AMK_CHECK(fill(how, runner_->stream(), buffers.x, x, seed, spread));
  if (y > 0) AMK_CHECK(fill(how, runner_->stream(), buffers.y, y, seed_y, spread));
  return {};
}

Status Bed::redraw(std::uint64_t seed, Draw draw) {
  seeds_[0] = seed;
  draws_[0] = draw;
  AMK_CHECK(draw_operands(sets_[0], seed, draw));
  return plain_result(sets_[0], reference_);
}

Status Bed::plain_result(const Buffers& buffers, std::vector<std::uint16_t>& out) {
  AMK_TRY(plan, make_plan(shape_, dense_storage(shape_), plain_kernel_config(), runner_->target()));
  AMK_TRY(plain, runner_->compile(plan));
  Buffers to_scratch = buffers;
  to_scratch.out = scratch_.pointer();
  AMK_CHECK(cuda::fill_u8(scratch_.pointer(), kPoisonByte, scratch_.bytes(), runner_->stream()));
  AMK_CHECK(plain->launch(to_scratch, runner_->stream().handle()));
  out.resize(static_cast<std::size_t>(out_bytes_ / 2));
  AMK_CHECK(cuda::copy_to_host(out.data(), scratch_.pointer(), scratch_.bytes(), runner_->stream()));
  AMK_CHECK(cuda::fill_u8(scratch_.pointer(), kPoisonByte, scratch_.bytes(), runner_->stream()));  // no answer lies about
  return runner_->synchronize();
}

Result<Compared> Bed::compare(const Buffers& buffers, const std::vector<std::uint16_t>& want) const {
  const std::size_t bytes = static_cast<std::size_t>(out_bytes_);
  std::vector<unsigned char> got(bytes + 2 * kGuardBytes);
  AMK_CHECK(cuda::copy_to_host(got.data(), buffers.out - kGuardBytes, got.size(), runner_->stream()));
  AMK_CHECK(runner_->synchronize());
  Compared result;
  for (std::size_t i = 0; i < kGuardBytes; ++i) result.guard_bytes += (got[i] != kGuardByte) + (got[kGuardBytes + bytes + i] != kGuardByte);
  const unsigned char* body = got.data() + kGuardBytes;
  if (bytes > 0 && std::memcmp(body, want.data(), bytes) != 0) {
    for (std::size_t i = 0; i < want.size(); ++i) {
      std::uint16_t word = 0;
      std::memcpy(&word, body + i * 2, 2);
      if (word == want[i]) continue;
      if (result.different++ == 0) result.first = i;
    }
  }
  return result;
}

Result<Compared> Bed::check(const std::function<Status(const Buffers&)>& launch) {
  const cuda::Stream& stream = runner_->stream();
  AMK_CHECK(cuda::fill_u8(sets_[0].out - kGuardBytes, kGuardByte, static_cast<std::size_t>(out_bytes_) + 2 * kGuardBytes, stream));
  AMK_CHECK(cuda::fill_u8(sets_[0].out, kPoisonByte, static_cast<std::size_t>(out_bytes_), stream));
  AMK_CHECK(launch(sets_[0]));
  AMK_TRY(result, compare(sets_[0], reference_));
  // The inputs again, from their seed, against what the candidate left of them.
  AMK_TRY(diff, runner_->helper("fill.cu", "det_gemm_compare"));
  AMK_TRY(x, cuda::Memory::allocate(operand_bytes(shape_.m, shape_.k)));
  AMK_TRY(y, cuda::Memory::allocate(operand_bytes(shape_.n, shape_.k)));
  AMK_TRY(counters, cuda::Memory::allocate(16));
  AMK_CHECK(cuda::fill_u8(counters.pointer(), 0, 16, stream));
  AMK_CHECK(draw_operands({x.pointer(), y.pointer(), 0, 0}, seeds_[0], draws_[0]));
  const cuda::Launch how{.grid = {1024}, .block = {256}, .cluster = {}};
  const std::int64_t nx = shape_.m * shape_.k, ny = shape_.n * shape_.k;
  const cuda::DevicePtr first = counters.pointer() + 8;
  if (nx > 0) AMK_CHECK(diff(how, stream, x.pointer(), sets_[0].x, nx, counters.pointer(), first));
  if (ny > 0) AMK_CHECK(diff(how, stream, y.pointer(), sets_[0].y, ny, counters.pointer(), first));
  AMK_CHECK(cuda::copy_to_host(&result.inputs_changed, counters.pointer(), 8, stream));
  AMK_CHECK(runner_->synchronize());
  return result;
}

Status Bed::poison_outputs() {
  for (const Buffers& buffers : sets_) AMK_CHECK(cuda::fill_u8(buffers.out, kPoisonByte, static_cast<std::size_t>(out_bytes_), runner_->stream()));
  return {};
}

Status Bed::launch_all(const Contender& contender) {
  AMK_CHECK(poison_outputs());
  for (const Buffers& buffers : sets_) AMK_CHECK(contender.launch(buffers));
  return {};
}

Result<Compared> Bed::check_outputs(int count) {
  Compared total;
  for (int i = 0; i < std::min(count, sets()); ++i) {
    const Buffers& buffers = sets_[static_cast<std::size_t>(i)];
    std::vector<std::uint16_t> want;
    AMK_CHECK(plain_result(buffers, want));
    AMK_TRY(result, compare(buffers, want));
    if (total.different == 0) total.first = result.first;
    total.different += result.different;
    total.guard_bytes += result.guard_bytes;
  }
  return total;
}

Result<std::int64_t> Bed::oracle_mismatches(int blocks, std::uint64_t seed, std::int64_t& checked) {
  const cuda::Stream& stream = runner_->stream();
  std::vector<std::uint16_t> x(static_cast<std::size_t>(shape_.m * shape_.k)), y(static_cast<std::size_t>(shape_.n * shape_.k));
  const auto* out = reinterpret_cast<const std::uint8_t*>(reference_.data());
  AMK_CHECK(cuda::copy_to_host(x.data(), sets_[0].x, x.size() * 2, stream));
  AMK_CHECK(cuda::copy_to_host(y.data(), sets_[0].y, y.size() * 2, stream));
  AMK_CHECK(runner_->synchronize());
  AMK_TRY(base, numeric_class_of(runner_->target().sm_major, runner_->target().sm_minor));
  NumericClass numeric = base;
  if (shape_.chunk > 0) {
    AMK_TRY(cut, chunked(base, shape_.chunk));
    numeric = cut;
  }
  const Inputs inputs{shape_, {x.data(), dense_stride_x(shape_), shape_.x_k_contiguous}, {y.data(), dense_stride_y(shape_), shape_.y_k_contiguous}};
  Rng rng(seed);
  std::int64_t wrong = 0;
  for (int i = 0; i < blocks; ++i) {
    Block block{0, 0, std::min<std::int64_t>(64, shape_.m), std::min<std::int64_t>(64, shape_.n)};
    block.row = i == 0 ? shape_.m - block.rows : static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(shape_.m - block.rows + 1)));
    block.col = i == 0 ? shape_.n - block.cols : static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(shape_.n - block.cols + 1)));
    std::vector<std::uint32_t> expected(static_cast<std::size_t>(block.rows * block.cols));
    std::vector<GuardElement> guard;
    if (numeric.verified)
      oracle_block(inputs, numeric, block, expected);
    else
      guard = fp64_guard(inputs, numeric, block);  // no model of this architecture's bits: only the bound can speak
    for (std::int64_t r = 0; r < block.rows; ++r) {
      for (std::int64_t c = 0; c < block.cols; ++c) {
        const auto in_block = static_cast<std::size_t>(r * block.cols + c), at = static_cast<std::size_t>((block.row + r) * shape_.n + block.col + c);
        std::uint32_t got = 0, want = expected[in_block];
        if (shape_.out == OutType::Bf16) {
          std::uint16_t half = 0;
          std::memcpy(&half, out + at * 2, 2);
          got = static_cast<std::uint32_t>(half) << 16;
          want = static_cast<std::uint32_t>(float_to_bf16(std::bit_cast<float>(want))) << 16;
        } else {
          std::memcpy(&got, out + at * 4, 4);
        }
        const float value = std::bit_cast<float>(got);
        wrong += numeric.verified ? got != want : first_violation({&guard[in_block], 1}, {&value, 1}) >= 0;
      }
    }
    checked += block.rows * block.cols;
  }
  return wrong;
}

Result<GraphContestant> Bed::contestant(const Contender& contender, double sample_us) {
  return GraphContestant::record(runner_->stream(), sets_, contender.launch, sample_us);
}

Result<std::vector<Raced>> Bed::race(const std::vector<Contender>& contenders, int rounds, double sample_us) {
  std::vector<GraphContestant> graphs;
  for (const Contender& contender : contenders) {
    AMK_TRY(graph, contestant(contender, sample_us));
    graphs.push_back(std::move(graph));
  }
  std::vector<std::vector<double>> samples(contenders.size());
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t turn = 0; turn < contenders.size(); ++turn) {
      const std::size_t i = round % 2 == 0 ? turn : contenders.size() - 1 - turn;
      AMK_TRY(us, graphs[i].sample_us());
      if (round >= 0) samples[i].push_back(us);
    }
  }
  std::vector<Raced> timings;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const RatioInterval interval = paired_ratio(samples[0], samples[i]);
    timings.push_back({contenders[i].name, samples[i], median(samples[i]), interval.ratio, interval.ci_low, interval.ci_high});
  }
  return timings;
}

}  // namespace amk::det_gemm
