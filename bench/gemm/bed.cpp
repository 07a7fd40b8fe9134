#include "bench/gemm/bed.h"

#include <algorithm>
#include <cmath>

#include "core/base/random.h"
#include "core/base/stats.h"
#include "kernels/det_gemm/bf16.h"

namespace amk::det_gemm {
namespace {

Config plain_config() {
  return {.path = Path::Plain,
          .tile_m = 16,
          .tile_n = 8,
          .tile_k = 32,
          .stages = 2,
          .consumers = 1,
          .cluster_m = 1,
          .cluster_n = 1,
          .swap = false,
          .raster = RasterAlong::M,
          .group = 1,
          .epilogue = Epilogue::Direct,
          .store_buffers = 2,
          .l2_x = L2Hint::Normal,
          .l2_y = L2Hint::Normal,
          .overlap = false};
}

}  // namespace

Result<Bed> Bed::make(Runner& runner, const Problem& problem, std::uint64_t seed, std::int64_t rotate_bytes) {
  Bed bed(runner);
  bed.problem_ = problem;
  bed.shape_ = canonical(problem);
  const Canonical& s = bed.shape_;
  bed.out_bytes_ = s.m * s.n * (s.out == OutType::Bf16 ? 2 : 4);
  AMK_TRY(fill, runner.helper("fill.cu", "det_gemm_fill"));
  const std::int64_t per_set = 2 * (s.m * s.k + s.n * s.k) + bed.out_bytes_;
  const std::int64_t count = std::clamp<std::int64_t>(rotate_bytes / std::max<std::int64_t>(per_set, 1) + 1, 2, 32);
  for (std::int64_t i = 0; i < count; ++i) {
    Buffers buffers;
    for (const auto& [target, elements] : {std::pair{&buffers.x, s.m * s.k}, std::pair{&buffers.y, s.n * s.k}}) {
      AMK_TRY(memory, cuda::Memory::allocate(static_cast<std::size_t>(elements * 2)));
      *target = memory.pointer();
      const std::uint64_t s1 = mix64(seed + bed.memory_.size());
      const int spread = 0;
      AMK_CHECK(fill({.grid = {1024}, .block = {256}, .cluster = {}}, runner.stream(), memory.pointer(), elements, s1, spread));
      bed.memory_.push_back(std::move(memory));
    }
    AMK_TRY(out, cuda::Memory::allocate(static_cast<std::size_t>(bed.out_bytes_)));
    buffers.out = out.pointer();
    bed.memory_.push_back(std::move(out));
    bed.sets_.push_back(buffers);
  }
  AMK_TRY(reference, cuda::Memory::allocate(static_cast<std::size_t>(bed.out_bytes_)));
  bed.reference_ = std::move(reference);
  AMK_TRY(plan, make_plan(s, dense_storage(s), plain_config(), runner.target()));
  AMK_TRY(plain, runner.compile(plan));
  Buffers to_reference = bed.sets_[0];
  to_reference.out = bed.reference_.pointer();
  AMK_CHECK(plain->launch(to_reference, runner.stream().handle()));
  AMK_CHECK(runner.synchronize());
  return bed;
}

Result<std::uint64_t> Bed::mismatches(const std::function<Status(const Buffers&)>& launch) {
  const cuda::Stream& stream = runner_->stream();
  AMK_CHECK(cuda::fill_u8(sets_[0].out, 0xFF, static_cast<std::size_t>(out_bytes_), stream));
  AMK_CHECK(launch(sets_[0]));
  AMK_TRY(compare, runner_->helper("fill.cu", "det_gemm_compare"));
  AMK_TRY(counters, cuda::Memory::allocate(16));
  AMK_CHECK(cuda::fill_u8(counters.pointer(), 0, 8, stream));
  AMK_CHECK(cuda::fill_u8(counters.pointer() + 8, 0xFF, 8, stream));
  AMK_CHECK(compare({.grid = {1024}, .block = {256}, .cluster = {}}, stream, sets_[0].out, reference_.pointer(), out_bytes_ / 2, counters.pointer(),
                    counters.pointer() + 8));
  std::uint64_t result[2] = {};
  AMK_CHECK(cuda::copy_to_host(result, counters.pointer(), 16, stream));
  AMK_CHECK(runner_->synchronize());
  return result[0];
}

Result<std::int64_t> Bed::oracle_mismatches(int blocks, std::uint64_t seed, std::int64_t& checked) {
  const cuda::Stream& stream = runner_->stream();
  std::vector<std::uint16_t> x(static_cast<std::size_t>(shape_.m * shape_.k)), y(static_cast<std::size_t>(shape_.n * shape_.k));
  std::vector<std::uint8_t> out(static_cast<std::size_t>(out_bytes_));
  AMK_CHECK(cuda::copy_to_host(x.data(), sets_[0].x, x.size() * 2, stream));
  AMK_CHECK(cuda::copy_to_host(y.data(), sets_[0].y, y.size() * 2, stream));
  AMK_CHECK(cuda::copy_to_host(out.data(), reference_.pointer(), out.size(), stream));
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
    oracle_block(inputs, numeric, block, expected);
    for (std::int64_t r = 0; r < block.rows; ++r) {
      for (std::int64_t c = 0; c < block.cols; ++c) {
        const std::uint32_t want = expected[static_cast<std::size_t>(r * block.cols + c)];
        const auto at = static_cast<std::size_t>((block.row + r) * shape_.n + block.col + c);
        if (shape_.out == OutType::Bf16) {
          std::uint16_t got = 0;
          std::memcpy(&got, out.data() + at * 2, 2);
          wrong += got != float_to_bf16(std::bit_cast<float>(want));
        } else {
          std::uint32_t got = 0;
          std::memcpy(&got, out.data() + at * 4, 4);
          wrong += got != want;
        }
      }
    }
    checked += block.rows * block.cols;
  }
  return wrong;
}

Result<std::vector<Timing>> Bed::race(const std::vector<Contender>& contenders, int rounds, double sample_us) {
  const cuda::Stream& stream = runner_->stream();
  AMK_TRY(start, cuda::Event::create());
  AMK_TRY(stop, cuda::Event::create());
  std::vector<Graph> graphs;
  std::vector<int> launches;
  for (const Contender& contender : contenders) {
    // One untimed pass over all sets, then one timed, to size the graph.
    double estimate_us = 0;
    for (int pass = 0; pass < 2; ++pass) {
      AMK_CHECK(start.record(stream));
      for (const Buffers& buffers : sets_) AMK_CHECK(contender.launch(buffers));
      AMK_CHECK(stop.record(stream));
      AMK_CHECK(stop.synchronize());
      AMK_TRY(us, cuda::Event::elapsed_us(start, stop));
      estimate_us = us / static_cast<double>(sets_.size());
    }
    const int count = std::clamp(static_cast<int>(std::ceil(sample_us / std::max(estimate_us, 1.0))), sets(), 400);
    AMK_TRY(graph, Graph::record(stream, [&]() -> Status {
              for (int i = 0; i < count; ++i) AMK_CHECK(contender.launch(sets_[static_cast<std::size_t>(i) % sets_.size()]));
              return {};
            }));
    graphs.push_back(std::move(graph));
    launches.push_back(count);
  }
  std::vector<std::vector<double>> samples(contenders.size());
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t turn = 0; turn < contenders.size(); ++turn) {
      const std::size_t i = round % 2 == 0 ? turn : contenders.size() - 1 - turn;
      AMK_CHECK(start.record(stream));
      AMK_CHECK(graphs[i].launch(stream));
      AMK_CHECK(stop.record(stream));
      AMK_CHECK(stop.synchronize());
      AMK_TRY(us, cuda::Event::elapsed_us(start, stop));
      if (round >= 0) samples[i].push_back(us / launches[i]);
    }
  }
  std::vector<Timing> timings;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const RatioInterval interval = paired_ratio(samples[0], samples[i]);
    timings.push_back({contenders[i].name, median(samples[i]), interval.ratio, interval.ci_low, interval.ci_high});
  }
  return timings;
}

}  // namespace amk::det_gemm
