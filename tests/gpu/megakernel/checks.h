// Counting checks, and what every test of this program needs.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/resources.h"
#include "kernels/megakernel/gpu_judge.h"
#include "kernels/megakernel/gpu_model.h"
#include "kernels/worker.h"

namespace amk::gpu_test {

class Checks {
 public:
  bool check(bool good, const std::string& what) {
    ++(good ? passed : failed);
    if (!good) std::printf("FAILED %s\n", what.c_str());
    std::fflush(stdout);
    return good;
  }
  template <class T>
  bool check(const Result<T>& result, const std::string& what) {
    return check(result.has_value(), result ? what : what + ": " + result.error().message + " " + result.error().data.dump());
  }
  int passed = 0, failed = 0;
};

struct Bench {
  GpuDevice device;
  GpuTarget target;
  Resources resources;
  std::filesystem::path cache, fixtures;  // fixtures: folder of tiny checkpoints; empty when absent
  std::string self;                       // this program: it is its own worker
  bool quick = false;

  Result<std::shared_ptr<const MegakernelWorkload>> workload(const std::string& model) const;
  Result<std::unique_ptr<GpuModel>> model(const std::string& name, int max_seq, int batch = 1) const;
  // `fault`: what the worker shall do in the next checks; read at every check.
  std::unique_ptr<GpuJudge> judge(WorkerLink& link, const std::string* fault = nullptr) const;
  std::unique_ptr<WorkerLink> process_link() const { return make_process_link({self, "--worker", cache.string()}); }
  std::vector<std::string> fixture_models() const;
};

// A config from JSON text, missing keys by default.
Result<ScheduleConfig> config_of(const std::string& text);
Json json_of(const std::string& text);

void test_judge(const Bench& bench, Checks& checks);                // verdicts of good, rejected and hanging candidates through a worker process
void test_judge_crowded(const Bench& bench, Checks& checks);        // slow and good candidates, alone on the card and beside other programs
void test_fixtures(const Bench& bench, Checks& checks);             // every checkpoint against the gate, and greedy ids against the oracle's
void test_slices(const Bench& bench, Checks& checks);               // gemv_path "slices"
void test_attention_o(const Bench& bench, Checks& checks);          // attention and o_proj in one instruction
void test_knobs(const Bench& bench, Checks& checks);                // every compiled-in knob on toy and small
void test_contexts(const Bench& bench, Checks& checks);             // thousands of positions against the oracle
void test_kv_ring(const Bench& bench, Checks& checks);              // the cache through the ring: the bits of the warps' own loads
void test_sanitize_kv_ring(const Bench& bench, Checks& checks);     // a few steps of it, for compute-sanitizer; only when asked for
void test_racecheck_kv_direct(const Bench& bench, Checks& checks);  // the same steps by own loads
void test_racecheck_kv_ring(const Bench& bench, Checks& checks);    // likewise, with full barriers
void test_batch(const Bench& bench, Checks& checks);                // several sequences a launch, each to the bit as it is alone
void test_wrong(const Bench& bench, Checks& checks);                // a suite of wrong kernels, all refused
void test_wrong_slices(const Bench& bench, Checks& checks);         // likewise, of slices
void test_wrong_attention_o(const Bench& bench, Checks& checks);
void test_wrong_ring(const Bench& bench, Checks& checks);       // plans whose ring brings too few chunks
void test_wrong_int8(const Bench& bench, Checks& checks);       // likewise, of int8 products
void test_instruction(const Bench& bench, Checks& checks);      // every instruction kind alone
void test_steps(const Bench& bench, Checks& checks);            // several steps a launch, each to the bit as by one
void test_sanitize_steps(const Bench& bench, Checks& checks);   // a few of them, for compute-sanitizer; only when asked for
void test_racecheck_steps(const Bench& bench, Checks& checks);  // likewise, with full barriers
void test_racecheck_steps_batch(const Bench& bench, Checks& checks);
void test_sanitize_batch(const Bench& bench, Checks& checks);   // a few steps of three sequences, for compute-sanitizer; only when asked for
void test_racecheck_batch(const Bench& bench, Checks& checks);  // likewise, with full barriers
void test_long(const Bench& bench, Checks& checks);             // a thousand tokens, bit for bit
void test_longest(const Bench& bench, Checks& checks);          // ten thousand; only when asked for

// Short enough for compute-sanitizer; only when asked for.
void test_sanitize_attention_o(const Bench& bench, Checks& checks);
void test_racecheck_attention_o(const Bench& bench, Checks& checks);
void test_sanitize(const Bench& bench, Checks& checks);         // a few steps of every code path
void test_racecheck(const Bench& bench, Checks& checks);        // the same built for racecheck (PlanOptions::full_barriers)
void test_barriers_arrive(const Bench& bench, Checks& checks);  // what racecheck itself understands: racecheck_test.cpp
void test_barriers_full(const Bench& bench, Checks& checks);
void test_barriers_some(const Bench& bench, Checks& checks);

}  // namespace amk::gpu_test
