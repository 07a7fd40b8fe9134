// dB: indifferent to trailing zero rows and to how the tokens are split over calls, in one resumed chain and in chunks.
#include <bit>

#include "tests/gpu/det_gemm/cases.h"
#include "tests/gpu/det_gemm/checks.h"

namespace amk::det_gemm::gpu_test {
namespace {

Operands tokens(const Operands& all, std::int64_t begin, std::int64_t end, OutType out) {
  Operands part = all;
  part.shape.k = end - begin;
  part.shape.out = out;
  const auto cut = [&](const std::vector<std::uint16_t>& values, std::int64_t stride) {
    return std::vector<std::uint16_t>(values.begin() + begin * stride, values.begin() + end * stride);
  };
  part.x = cut(all.x, all.storage.stride_x);
  part.y = cut(all.y, all.storage.stride_y);
  return part;
}

std::vector<float> as_floats(const std::vector<std::uint32_t>& bits) {
  std::vector<float> values(bits.size());
  for (std::size_t i = 0; i < bits.size(); ++i) values[i] = std::bit_cast<float>(bits[i]);
  return values;
}

// One chain over two and three calls: the bits of one call over all tokens, whatever lies in the sums that are handed on.
void test_resumed(Runner& runner, Checks& checks, std::vector<Config> configs, std::int64_t count) {
  const NumericClass numeric = *numeric_class_of(runner.target().sm_major, runner.target().sm_minor);
  Operands all = make_operands({.m = 136, .n = 200, .k = count, .x_k_contiguous = false, .y_k_contiguous = false, .out = OutType::Fp32}, 51, 6);
  const std::uint16_t infinity = 0x7F80, nan = 0x7FC1, largest = 0x7F7F;
  all.x[3] = infinity, all.x[static_cast<std::size_t>(all.storage.stride_x) + 70] = nan, all.x[100] = largest, all.y[199] = largest;
  Operands all_bf16 = all;
  all_bf16.shape.out = OutType::Bf16;
  const auto want_fp32 = expected(all, numeric), want_bf16 = expected(all_bf16, numeric);
  configs.push_back(plain_kernel_config());
  const auto part = [&](std::int64_t begin, std::int64_t end, OutType out) {
    Operands o = tokens(all, begin, end, out);
    o.shape.resumed = begin > 0;
    return o;
  };
  std::vector<std::pair<Canonical, Storage>> shapes;
  for (const OutType out : {OutType::Fp32, OutType::Bf16}) {
    for (const std::int64_t begin : {std::int64_t{0}, count / 2}) shapes.emplace_back(part(begin, count, out).shape, all.storage);
  }
  prebuild(runner, shapes, configs);
  for (const Config& config : configs) {
    if (!make_plan(part(16, count, OutType::Fp32).shape, all.storage, config, runner.target())) continue;
    const std::string what = describe(all.shape, config);
    for (const std::int64_t cut : {std::int64_t{16}, count / 2 / 16 * 16, (count - 1) / 16 * 16}) {
      const auto first = run_case(runner, part(0, cut, OutType::Fp32), config);
      if (!first) {
        checks.expect_ok(first, "resumed, first part " + what);
        continue;
      }
      const auto sums = as_floats(*first);
      const auto second = run_case(runner, part(cut, count, OutType::Fp32), config, 4, sums);
      checks.expect(second && *second == want_fp32, "resumed at " + std::to_string(cut) + " " + what);
      const auto rounded = run_case(runner, part(cut, count, OutType::Bf16), config, 0, sums);
      checks.expect(rounded && *rounded == want_bf16, "resumed at " + std::to_string(cut) + " to bf16 " + what);
      const std::int64_t again = (cut + count) / 2 / 16 * 16;
      if (again <= cut || again >= count) continue;
      const auto middle = run_case(runner, part(cut, again, OutType::Fp32), config, 0, sums);
      const auto last = middle ? run_case(runner, part(again, count, OutType::Fp32), config, 0, as_floats(*middle)) : middle;
      checks.expect(last && *last == want_fp32, "resumed at " + std::to_string(cut) + " and " + std::to_string(again) + " " + what);
    }
    checks.expect(!run_case(runner, part(16, count, OutType::Fp32), config), "resumed without sums is refused " + what);
    checks.expect(!run_case(runner, part(0, 16, OutType::Fp32), config, 0, as_floats(want_fp32)), "sums of a chain that starts are refused " + what);
  }
}

}  // namespace

void test_chunks(Runner& runner, Checks& checks, const Options& options) {
  const NumericClass base = *numeric_class_of(runner.target().sm_major, runner.target().sm_minor);
  const std::int64_t count = options.quick ? 320 : 1000, chunk = 128;
  std::vector<Config> configs = few_configs();
  Config wide = configs[0];
  wide.tile_n = 128;
  configs.push_back(wide);
  wide.tile_n = 192;
  wide.cluster_m = 1;
  configs.push_back(wide);
  for (const int tile_n : {128, 176, 208}) {
    wide.tile_n = tile_n;
    configs.push_back(wide);
  }
  wide.tile_m = 192, wide.consumers = 3, wide.tile_n = 120;
  configs.push_back(wide);

  std::vector<Config> resumed = configs;
  resumed.push_back(configs[0]);
  resumed.back().tile_n = 256;
  test_resumed(runner, checks, resumed, count);

  Operands all =
      make_operands({.m = 136, .n = 200, .k = count, .x_k_contiguous = false, .y_k_contiguous = false, .out = OutType::Fp32, .chunk = chunk}, 50, 3);
  const NumericClass numeric = *chunked(base, chunk);
  const auto want_fp32 = expected(all, numeric);
  Operands all_bf16 = all;
  all_bf16.shape.out = OutType::Bf16;
  const auto want_bf16 = expected(all_bf16, numeric);
  checks.expect(want_fp32 != expected(all, base), "chunking is a numeric class of its own");

  std::vector<std::pair<Canonical, Storage>> shapes;
  for (const OutType out : {OutType::Fp32, OutType::Bf16}) {
    for (const std::int64_t cut : {std::int64_t{0}, chunk}) {
      Canonical shape = all.shape;
      shape.out = out;
      shape.chunk = cut;
      shapes.emplace_back(shape, all.storage);
    }
  }
  prebuild(runner, shapes, configs);
  for (const Config& config : configs) {
    if (!make_plan(all.shape, all.storage, config, runner.target())) continue;
    const std::string what = describe(all.shape, config);
    const auto whole = run_case(runner, all, config);
    checks.expect(whole && *whole == want_fp32, "chunked " + what + (whole ? "" : ": " + whole.error().message));
    for (std::int64_t cut = chunk; cut < count; cut += chunk) {
      const auto first = run_case(runner, tokens(all, 0, cut, OutType::Fp32), config);
      if (!first) {
        checks.expect_ok(first, "chunked first part " + what);
        continue;
      }
      const auto second = run_case(runner, tokens(all, cut, count, OutType::Fp32), config, 0, as_floats(*first));
      checks.expect(second && *second == want_fp32, "chunked, cut at " + std::to_string(cut) + " " + what);
      const auto rounded = run_case(runner, tokens(all, cut, count, OutType::Bf16), config, 0, as_floats(*first));
      checks.expect(rounded && *rounded == want_bf16, "chunked, cut at " + std::to_string(cut) + " to bf16 " + what);
      for (std::int64_t again = cut + chunk; again < count; again += 2 * chunk) {
        const auto middle = run_case(runner, tokens(all, cut, again, OutType::Fp32), config, 0, as_floats(*first));
        const auto last = middle ? run_case(runner, tokens(all, again, count, OutType::Fp32), config, 0, as_floats(*middle)) : middle;
        checks.expect(last && *last == want_fp32, "chunked, cut at " + std::to_string(cut) + " and " + std::to_string(again) + " " + what);
      }
    }
  }

  // Trailing zero tokens, one chain and chunked; the other operand's rows there are not zero.
  for (const std::int64_t cut : {std::int64_t{0}, chunk}) {
    Operands plain = tokens(all, 0, count - 100, OutType::Fp32);
    plain.shape.chunk = cut;
    const auto want = expected(plain, cut == 0 ? base : numeric);
    for (const std::int64_t zeros : {1, 8, 64, 100}) {
      Operands padded = tokens(all, 0, count - 100 + zeros, OutType::Fp32);
      padded.shape.chunk = cut;
      std::fill(padded.x.begin() + (count - 100) * padded.storage.stride_x, padded.x.end(), zeros % 2 == 0 ? 0 : 0x8000);
      for (const Config& config : few_configs()) {
        if (!make_plan(padded.shape, padded.storage, config, runner.target())) continue;
        const auto got = run_case(runner, padded, config);
        checks.expect(got && *got == want, std::to_string(zeros) + " trailing zero rows " + describe(padded.shape, config));
      }
    }
  }
}

}  // namespace amk::det_gemm::gpu_test
