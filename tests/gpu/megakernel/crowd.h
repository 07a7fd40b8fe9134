// Other programs on the card: processes of their own that keep it busy, as they do on a machine that several people use.
#pragma once

#include <sys/types.h>

#include <vector>

#include "tests/gpu/megakernel/checks.h"

namespace amk::gpu_test {

// Runs while the object lives. Each process launches kernels of a millisecond on all multiprocessors, one after the other; the card gives its
// contexts turns.
class Crowd {
 public:
  // Returns when every one has run a kernel.
  static Result<Crowd> gather(const Bench& bench, int processes);
  ~Crowd();  // ends and reaps them
  Crowd(Crowd&& other) noexcept : all_(std::move(other.all_)) { other.all_.clear(); }
  Crowd& operator=(Crowd&&) = delete;

 private:
  Crowd() = default;
  struct One {
    pid_t pid;
    int in, out;
  };
  std::vector<One> all_;
};

// One of them: until stdin is closed. Writes a line when it has begun. An exit code.
int run_in_crowd(const Bench& bench);

}  // namespace amk::gpu_test
