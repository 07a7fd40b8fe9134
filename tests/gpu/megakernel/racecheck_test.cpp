// What racecheck makes of a named barrier at which some warps only arrive. The kernel below has no race: every store to `sums` comes before a
// `bar.sync 1` of all warps, every load after it, and the next store after another one. Warps other than the last arrive at barrier 3 where the last
// one waits, as those of the megakernel do with their partial sums; `full` lets all of them wait there and changes nothing else. A tool that reports
// the one and not the other does not model `bar.arrive`, and what it says of the megakernel's arrivals is of the same kind. `some`: as `full`, and
// three warps meet at a barrier of their own, as those do that finish a sequence each of a batch.
#include "checks.h"

#include "kernels/evaluator/cuda_runtime.h"
#include "tests/gpu/megakernel/runs.h"

namespace amk::gpu_test {
namespace {

constexpr int kWarps = 8, kRounds = 64;

constexpr const char* kSource = R"(
constexpr int kWarps = 8;
enum Kind { kArrive, kFull, kSome };
template <Kind K>
__device__ void rounds(float* out, int count) {
  __shared__ float sums[kWarps], handed[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float value = warp + 1;
  for (int round = 0; round < count; ++round) {
    if (lane == 0) handed[warp] = value;
    if (warp == kWarps - 1 || K != kArrive) {
      asm volatile("bar.sync 3, 256;" ::: "memory");
      if (warp == kWarps - 1) {
        value = 0;
        for (int w = 0; w < kWarps; ++w) value += handed[w];
        value /= 4;
      }
    } else {
      asm volatile("bar.arrive 3, 256;" ::: "memory");
    }
    if (K == kSome && warp < 3) asm volatile("bar.sync 4, 96;" ::: "memory");
    if (lane == 0) sums[warp] = value;
    asm volatile("bar.sync 1, 256;" ::: "memory");
    float total = 0;
    for (int w = 0; w < kWarps; ++w) total += sums[w];
    value = total / kWarps;
    asm volatile("bar.sync 1, 256;" ::: "memory");
  }
  if (lane == 0) out[warp] = value;
}
extern "C" __global__ void arrive(float* out, int count) { rounds<kArrive>(out, count); }
extern "C" __global__ void full(float* out, int count) { rounds<kFull>(out, count); }
extern "C" __global__ void some(float* out, int count) { rounds<kSome>(out, count); }
)";

// The same in the order in which the kernel adds.
float expected() {
  float value[kWarps];
  for (int w = 0; w < kWarps; ++w) value[w] = static_cast<float>(w + 1);
  for (int round = 0; round < kRounds; ++round) {
    float last = 0, total = 0;
    for (const float v : value) last += v;
    value[kWarps - 1] = last / 4;
    for (const float v : value) total += v;
    for (float& v : value) v = total / kWarps;
  }
  return value[0];
}

Result<std::vector<float>> run(const Bench& bench, const char* name) {
  AMK_TRY(context, cuda::Context::open(bench.device.ordinal));
  AMK_TRY(module, module_of(bench, "barriers.cu", kSource));
  AMK_TRY(function, module.function(name));
  AMK_TRY(stream, cuda::Stream::create());
  AMK_TRY(memory, cuda::Memory::allocate(kWarps * sizeof(float)));
  cuda::Launch launch;
  launch.grid = {1, 1, 1};
  launch.block = {kWarps * 32, 1, 1};
  const cuda::DevicePtr out = memory.pointer();
  AMK_CHECK(function(launch, stream, out, kRounds));
  std::vector<float> values(kWarps);
  AMK_CHECK(cuda::copy_to_host(values.data(), memory.pointer(), kWarps * sizeof(float), stream));
  AMK_CHECK(stream.synchronize());
  return values;
}

void test(const Bench& bench, Checks& checks, const char* kernel) {
  const auto values = run(bench, kernel);
  if (checks.check(values, std::string(kernel) + " runs"))
    checks.check(*values == std::vector<float>(kWarps, expected()), std::string(kernel) + ": every warp has the value that the host computes");
}

}  // namespace

void test_barriers_arrive(const Bench& bench, Checks& checks) { test(bench, checks, "arrive"); }
void test_barriers_full(const Bench& bench, Checks& checks) { test(bench, checks, "full"); }
void test_barriers_some(const Bench& bench, Checks& checks) { test(bench, checks, "some"); }

}  // namespace amk::gpu_test
