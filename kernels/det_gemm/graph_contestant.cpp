#include "kernels/det_gemm/graph_contestant.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace amk::det_gemm {

Result<GraphContestant> GraphContestant::record(const cuda::Stream& stream, std::span<const Buffers> sets,
                                                const std::function<Status(const Buffers&)>& launch, double sample_us) {
  GraphContestant c;
  c.stream_ = &stream;
  AMK_TRY(start, cuda::Event::create());
  AMK_TRY(stop, cuda::Event::create());
  c.start_ = std::move(start);
  c.stop_ = std::move(stop);
  double estimate_us = 0;
  for (int pass = 0; pass < 2; ++pass) {
    AMK_CHECK(c.start_.record(stream));
    for (const Buffers& buffers : sets) AMK_CHECK(launch(buffers));
    AMK_CHECK(c.stop_.record(stream));
    AMK_CHECK(c.stop_.synchronize());
    AMK_TRY(us, cuda::Event::elapsed_us(c.start_, c.stop_));
    estimate_us = us / static_cast<double>(sets.size());
  }
  c.launches_ = std::clamp(static_cast<int>(std::ceil(sample_us / std::max(estimate_us, 1.0))), static_cast<int>(sets.size()), 400);
  AMK_TRY(graph, Graph::record(stream, [&]() -> Status {
            for (int i = 0; i < c.launches_; ++i) AMK_CHECK(launch(sets[static_cast<std::size_t>(i) % sets.size()]));
            return {};
          }));
  c.graph_ = std::move(graph);
  return c;
}

Result<double> GraphContestant::sample_us() {
  const auto wall = std::chrono::steady_clock::now();
  AMK_CHECK(start_.record(*stream_));
  AMK_CHECK(graph_.launch(*stream_));
  AMK_CHECK(stop_.record(*stream_));
  AMK_CHECK(stop_.synchronize());
  const double wall_us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - wall).count();
  AMK_TRY(us, cuda::Event::elapsed_us(start_, stop_));
  wall_ratio_ = us > 0 ? wall_us / us : 0;
  return us / launches_;
}

}  // namespace amk::det_gemm
