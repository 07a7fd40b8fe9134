// Autotuning's candidates on the local GPU: built in parallel, gated bit for bit, timed by the evaluator's clock. Belongs to the Runner's thread.
#pragma once

#include <filesystem>
#include <optional>

#include "core/base/resources.h"
#include "kernels/det_gemm/autotune.h"
#include "kernels/det_gemm/bed.h"

namespace amk::det_gemm {

class GpuTuner final : public TuneDevice {
 public:
  GpuTuner(Runner& runner, Resources resources, std::filesystem::path cache)
      : runner_(&runner), resources_(std::move(resources)), cache_(std::move(cache)) {}
  std::string gpu() const override { return runner_->target().product; }
  Status open(const Problem& problem, std::span<const Plan> plans) override;
  Result<Trial> run(const Plan& plan, const Plan* best) override;
  void close() override {
    newest_.reset();
    best_.reset();
    bed_.reset();
  }

 private:
  Runner* runner_;
  Resources resources_;
  std::filesystem::path cache_;
  std::optional<Bed> bed_;
  // Launches over the bed's buffers.
  struct Recorded {
    Config config;
    GraphContestant launches;
  };
  std::optional<Recorded> newest_, best_;
};

}  // namespace amk::det_gemm
