// Running one problem on the GPU from host data, with guards, and the configs that the tests sweep.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "kernels/det_gemm/bf16.h"
#include "kernels/det_gemm/defaults.h"
#include "kernels/det_gemm/oracle.h"
#include "kernels/det_gemm/runner.h"

namespace amk::det_gemm::gpu_test {

// Host operands with any stride and any offset (in elements) of the first one from a 256-byte boundary.
struct Operands {
  Canonical shape;
  Storage storage;
  std::int64_t offset_x = 0, offset_y = 0, offset_out = 0;
  std::vector<std::uint16_t> x, y;

  Inputs inputs() const { return {shape, {x.data(), storage.stride_x, shape.x_k_contiguous}, {y.data(), storage.stride_y, shape.y_k_contiguous}}; }
};
// Dense or padded strides (`extra` elements more), random normal values scaled by up to 2^±spread.
Operands make_operands(const Canonical& shape, std::uint64_t seed, int spread = 0, std::int64_t extra = 0);
// Shifts the bases by `elements` and records the alignment that is left.
void misalign(Operands& operands, std::int64_t elements);

// Output as raw bits, [m][n]: bf16 widened to fp32 bits, or fp32 bits. An error when a guard around the output was written, a pad between
// rows was written, or an element was not (`expect_total`: with the running total `total_in`, empty for none).
Result<std::vector<std::uint32_t>> run_case(Runner& runner, const Operands& operands, const Config& config, int max_blocks = 0,
                                            const std::vector<float>& total_in = {});

// Dense operands, and an output of bf16 whose bytes are all ones.
struct OnDevice {
  cuda::Memory x, y, out;
};
Result<OnDevice> on_device(const Operands& operands, const cuda::Stream& stream);

// The oracle's answer in the same form.
std::vector<std::uint32_t> expected(const Operands& operands, const NumericClass& numeric);

std::string describe(const Canonical& shape, const Config& config);

// Configs of every path and feature; those that a shape rejects are skipped by the caller.
const std::vector<Config>& all_configs();
const std::vector<Config>& few_configs();

// $AMK_BUILD_CACHE, or a folder for temporary files.
std::filesystem::path cache_folder();

// Compiles every plan in parallel before a test runs its cases one by one.
void prebuild(Runner& runner, const std::vector<std::pair<Canonical, Storage>>& shapes, const std::vector<Config>& configs);

}  // namespace amk::det_gemm::gpu_test
