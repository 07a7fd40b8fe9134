#include "tests/gpu/megakernel/crowd.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "core/base/unexpected.h"
#include "kernels/evaluator/cuda_runtime.h"
#include "tests/gpu/megakernel/runs.h"

extern char** environ;  // NOLINT: POSIX's

namespace amk::gpu_test {
namespace {

constexpr const char* kBusySource = R"(
__device__ unsigned long long now() {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}
extern "C" __global__ void busy(unsigned long long ns) {
  const unsigned long long end = now() + ns;
  while (now() < end) {
  }
}
)";

Status keep_busy(const Bench& bench) {
  AMK_TRY(context, cuda::Context::open(bench.device.ordinal));
  AMK_TRY(module, module_of(bench, "busy.cu", kBusySource));
  AMK_TRY(busy, module.function("busy"));
  AMK_TRY(stream, cuda::Stream::create());
  cuda::Launch launch;
  launch.grid = {static_cast<unsigned>(bench.device.sm_count), 1, 1};
  launch.block = {128, 1, 1};
  for (bool begun = false;; begun = true) {
    AMK_CHECK(busy(launch, stream, 1'000'000ull));
    AMK_CHECK(stream.synchronize());
    if (!begun && ::write(STDOUT_FILENO, "busy\n", 5) != 5) return {};
    pollfd in{STDIN_FILENO, POLLIN, 0};
    if (::poll(&in, 1, 0) != 0) return {};  // closed: whoever wanted this is gone
  }
}

}  // namespace

int run_in_crowd(const Bench& bench) {
  const Status ended = keep_busy(bench);
  if (!ended) std::fprintf(stderr, "%s\n", ended.error().message.c_str());
  return ended ? 0 : 3;
}

Result<Crowd> Crowd::gather(const Bench& bench, int processes) {
  Crowd crowd;
  for (int i = 0; i < processes; ++i) {
    std::array<int, 2> in{}, out{};
    if (::pipe2(in.data(), O_CLOEXEC) != 0) return fail(ErrorKind::Internal, "pipe2 failed");
    if (::pipe2(out.data(), O_CLOEXEC) != 0) {
      ::close(in[0]);
      ::close(in[1]);
      return fail(ErrorKind::Internal, "pipe2 failed");
    }
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::string program = bench.self, argument = "--crowd";
    std::array<char*, 3> argv = {program.data(), argument.data(), nullptr};
    One one{-1, in[1], out[0]};
    const int failed = ::posix_spawn(&one.pid, program.c_str(), &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    if (failed != 0) one.pid = -1;
    crowd.all_.push_back(one);
    if (failed != 0) return fail(ErrorKind::Internal, "posix_spawn failed", {{"errno", failed}});
  }
  for (const One& one : crowd.all_) {
    pollfd ready{one.out, POLLIN, 0};
    char first = 0;
    if (::poll(&ready, 1, 60'000) != 1 || ::read(one.out, &first, 1) != 1)
      return fail(ErrorKind::Unavailable, "a program that should keep the card busy did not begin");
  }
  return crowd;
}

Crowd::~Crowd() {
  for (const One& one : all_) {
    ::close(one.in);
    ::close(one.out);
    if (one.pid <= 0) continue;
    ::kill(one.pid, SIGTERM);
    ::waitpid(one.pid, nullptr, 0);
  }
}

}  // namespace amk::gpu_test
