// A token costs one read of every weight: the oracle's rate is shown beside that of threads that only read the same bytes. Best of the
// repeats, since other work on the machine can only add time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/base/parallel.h"
#include "core/model/load.h"
#include "core/model/tensor_table.h"
#include "core/reference/dot_kernels.h"
#include "core/reference/forward.h"

using namespace amk;

namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void print(const std::string& model, const char* metric, double value, const char* unit, const Json& versus = {}) {
  Json line = {{"bench", "oracle"}, {"model", model}, {"metric", metric}, {"value", value}, {"unit", unit}, {"isa", dot_kernels().name}};
  if (!versus.is_null()) line["versus"] = versus;
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

// Every weight byte once, with the same number of threads. Returns a value that depends on all of them.
std::uint64_t read_all(const Weights& weights, ThreadPool& pool) {
  std::atomic<std::uint64_t> total{0};
  for (const TensorShape& s : tensor_table(weights.spec())) {
    const TensorView v = weights.get(s.kind, s.layer);
    pool.for_ranges(v.bytes() / 8, 1 << 17, [&](std::int64_t begin, std::int64_t end) {
      std::uint64_t sum[8] = {};
      for (std::int64_t i = begin; i + 8 <= end; i += 8) {
        std::uint64_t words[8];
        std::memcpy(words, v.data + 8 * i, sizeof words);
        for (int k = 0; k < 8; ++k) sum[k] ^= words[k];
      }
      for (const std::uint64_t x : sum) total.fetch_xor(x, std::memory_order_relaxed);
    });
  }
  return total;
}

[[noreturn]] void stop(const Error& e) {
  std::fprintf(stderr, "bench/oracle: %s\n", e.message.c_str());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "llama-3.2-1b";
  const int tokens = std::clamp(argc > 2 ? std::atoi(argv[2]) : 8, 1, 256);
  const auto ref = resolve_model(model, ModelSources::from_environment("config"));
  if (!ref) stop(ref.error());
  double begin = now_s();
  const auto weights = load_weights(*ref);
  if (!weights) stop(weights.error());
  print(model, "load", now_s() - begin, "s");

  ThreadPool pool;
  double read_s = 1e9;
  std::uint64_t sink = 0;
  for (int i = 0; i < 3; ++i) {
    begin = now_s();
    sink ^= read_all(**weights, pool);
    read_s = std::min(read_s, now_s() - begin);
  }
  Oracle oracle(*weights, std::min(ref->spec.max_position, tokens + 1));
  double token_s = 1e9;
  int token = 1;
  for (int i = 0; i < tokens; ++i) {
    begin = now_s();
    const auto logits = oracle.step(token);
    if (!logits) stop(logits.error());
    token_s = std::min(token_s, now_s() - begin);
    token = argmax(*logits);
  }
  const double gigabytes = static_cast<double>(ref->spec.decode_weight_bytes()) / 1e9;
  print(model, "token", token_s * 1e3, "ms");
  print(model, "weight_bandwidth", gigabytes / token_s, "GB/s",
        {{"plain_read", gigabytes / read_s}, {"ratio", read_s / token_s}, {"threads", pool.size()}});
  return sink == 1 ? 1 : 0;  // keeps the reads
}
