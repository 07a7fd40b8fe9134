// The same bits a hundred times: beside a kernel that hogs SMs, on few blocks, under graph replay, in a fresh process.
#include <array>
#include <cstdio>
#include <filesystem>

#include "core/base/hash.h"
#include "kernels/det_gemm/driver_extras.h"
#include "tests/gpu/det_gemm/cases.h"
#include "tests/gpu/det_gemm/checks.h"

namespace amk::det_gemm::gpu_test {
namespace {

Operands fixed_problem() { return make_operands({.m = 520, .n = 1032, .k = 520, .y_k_contiguous = false}, 4242, 2); }
Config fixed_config() {
  Config c;
  c.cluster_m = 2;
  c.epilogue = Epilogue::Direct;
  return c;
}

struct OnDevice {
  cuda::Memory x, y, out;
  Buffers buffers() const { return {x.pointer(), y.pointer(), out.pointer(), 0}; }
};

Result<OnDevice> upload(Runner& runner, const Operands& o) {
  AMK_TRY(x, cuda::Memory::allocate(o.x.size() * 2));
  AMK_TRY(y, cuda::Memory::allocate(o.y.size() * 2));
  AMK_TRY(out, cuda::Memory::allocate(static_cast<std::size_t>(o.shape.m * o.shape.n * 2)));
  AMK_CHECK(cuda::copy_to_device(x.pointer(), o.x.data(), x.bytes(), runner.stream()));
  AMK_CHECK(cuda::copy_to_device(y.pointer(), o.y.data(), y.bytes(), runner.stream()));
  AMK_CHECK(runner.synchronize());
  return OnDevice{std::move(x), std::move(y), std::move(out)};
}

Result<std::vector<std::uint16_t>> download(Runner& runner, const OnDevice& device) {
  std::vector<std::uint16_t> values(device.out.bytes() / 2);
  AMK_CHECK(cuda::copy_to_host(values.data(), device.out.pointer(), device.out.bytes(), runner.stream()));
  AMK_CHECK(runner.synchronize());
  return values;
}

Result<int> repeats(Runner& runner, const Operands& o, const Config& config, int count, const std::vector<std::uint16_t>& want) {
  AMK_TRY(plan, make_plan(o.shape, o.storage, config, runner.target()));
  AMK_TRY(gemm, runner.compile(plan));
  AMK_TRY(device, upload(runner, o));
  AMK_TRY(hog, runner.helper("fill.cu", "det_gemm_fill"));
  AMK_TRY(beside, cuda::Stream::create());
  AMK_TRY(waste, cuda::Memory::allocate(64u << 20));
  int wrong = 0;
  for (int i = 0; i < count; ++i) {
    AMK_CHECK(cuda::fill_u8(device.out.pointer(), 0xFF, device.out.bytes(), runner.stream()));
    AMK_CHECK(runner.synchronize());
    const std::int64_t elements = (32 << 20) >> (i % 4);
    const std::uint64_t seed = static_cast<std::uint64_t>(i);
    const int spread = 0;
    AMK_CHECK(hog({.grid = {static_cast<unsigned>(64 + 37 * i)}, .block = {256}, .cluster = {}}, beside, waste.pointer(), elements, seed, spread));
    AMK_CHECK(gemm->launch(device.buffers(), runner.stream().handle(), i % 3 == 0 ? 0 : 2 + i));
    AMK_TRY(got, download(runner, device));
    wrong += got != want;
  }
  AMK_CHECK(beside.synchronize());
  return wrong;
}

Result<int> graph_repeats(Runner& runner, const Operands& o, const Config& config, const std::vector<std::uint16_t>& want) {
  AMK_TRY(plan, make_plan(o.shape, o.storage, config, runner.target()));
  AMK_TRY(gemm, runner.compile(plan));
  AMK_TRY(device, upload(runner, o));
  AMK_TRY(graph, Graph::record(runner.stream(), [&]() -> Status {
            AMK_CHECK(cuda::fill_u8(device.out.pointer(), 0xFF, device.out.bytes(), runner.stream()));
            for (int i = 0; i < 3; ++i) AMK_CHECK(gemm->launch(device.buffers(), runner.stream().handle()));
            return {};
          }));
  int wrong = 0;
  for (int i = 0; i < 10; ++i) {
    AMK_CHECK(graph.launch(runner.stream()));
    AMK_TRY(got, download(runner, device));
    wrong += got != want;
  }
  return wrong;
}

// Six products in a row, each of what the one before wrote, with nothing between the launches: where launches overlap, none may read or write early.
Result<std::vector<std::uint16_t>> chain(Runner& runner, const Operands& o, const Config& config, bool graph) {
  AMK_TRY(plan, make_plan(o.shape, o.storage, config, runner.target()));
  AMK_TRY(gemm, runner.compile(plan));
  AMK_TRY(device, upload(runner, o));
  const cuda::Stream& stream = runner.stream();
  Buffers there = device.buffers(), back = there;
  std::swap(back.x, back.out);
  const auto launches = [&]() -> Status {
    for (int i = 0; i < 6; ++i) AMK_CHECK(gemm->launch(i % 2 == 0 ? there : back, stream.handle()));
    return {};
  };
  if (graph) {
    AMK_TRY(recorded, Graph::record(stream, launches));
    AMK_CHECK(recorded.launch(stream));
    AMK_CHECK(runner.synchronize());
  } else {
    AMK_CHECK(launches());
  }
  std::vector<std::uint16_t> values(o.x.size());
  AMK_CHECK(cuda::copy_to_host(values.data(), device.x.pointer(), device.x.bytes(), stream));
  AMK_CHECK(runner.synchronize());
  return values;
}

std::string hash_of(const std::vector<std::uint16_t>& values) {
  return hash128_hex({reinterpret_cast<const char*>(values.data()), values.size() * 2});
}

}  // namespace

std::string fixed_problem_hash(Runner& runner) {
  const auto got = run_case(runner, fixed_problem(), fixed_config());
  if (!got) return got.error().message;
  std::vector<std::uint16_t> values(got->size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>((*got)[i] >> 16);
  return hash_of(values);
}

void test_repeats(Runner& runner, Checks& checks, const Options& options) {
  const NumericClass numeric = *numeric_class_of(runner.target().sm_major, runner.target().sm_minor);
  const Operands o = fixed_problem();
  const auto want = round_to_bf16(oracle_gemm(o.inputs(), numeric));
  prebuild(runner, {{o.shape, o.storage}}, few_configs());
  for (const Config& config : few_configs()) {
    const auto wrong = repeats(runner, o, config, options.quick ? 5 : 100, want);
    checks.expect(wrong && *wrong == 0,
                  "repeats " + describe(o.shape, config) + ": " + (wrong ? std::to_string(*wrong) + " differ" : wrong.error().message));
    const auto replayed = graph_repeats(runner, o, config, want);
    checks.expect(replayed && *replayed == 0,
                  "graph replay " + describe(o.shape, config) + ": " + (replayed ? std::to_string(*replayed) + " differ" : replayed.error().message));
  }
  for (const std::int64_t tokens : {16, 130}) {
    const Operands square = make_operands({.m = tokens, .n = 1024, .k = 1024, .y_k_contiguous = false}, 77);
    const auto in_turn = chain(runner, square, plain_kernel_config(), false);
    checks.expect(in_turn.has_value(), "chain by the plain kernel");
    for (const Config& config : few_configs()) {
      for (const bool graph : {false, true}) {
        const auto got = chain(runner, square, config, graph);
        if (!got && got.error().kind == ErrorKind::Rejected) continue;  // clusters that cover more than so few rows
        checks.expect(got && in_turn && *got == *in_turn,
                      "dependent chain " + describe(square.shape, config) + (graph ? " in a graph" : "") + (got ? "" : ": " + got.error().message));
      }
    }
  }
  // A fresh process, by running this program again.
  std::array<char, 64> line{};
  const std::string command = std::filesystem::read_symlink("/proc/self/exe").string() + " --hash";
  if (FILE* pipe = popen(command.c_str(), "r")) {
    const bool read = std::fgets(line.data(), line.size(), pipe) != nullptr;
    pclose(pipe);
    checks.expect(read && std::string(line.data()).substr(0, 32) == hash_of(want), "fresh process: " + std::string(line.data()));
  } else {
    checks.expect(false, "fresh process could not be started");
  }
}

}  // namespace amk::det_gemm::gpu_test
