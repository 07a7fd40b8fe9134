// A counting check for GPU tests: failures are printed, the program goes on, the last line says how many passed and failed.
#pragma once

#include <string>

#include "core/base/error.h"
#include "kernels/det_gemm/runner.h"

namespace amk::det_gemm::gpu_test {

class Checks {
 public:
  void expect(bool ok, const std::string& what) {
    ok ? ++passed_ : ++failed_;
    if (!ok) report(what);
  }
  // A machinery error fails the check that met it.
  template <class T>
  void expect_ok(const Result<T>& result, const std::string& what) {
    expect(result.has_value(), result ? what : what + ": " + result.error().message);
  }
  int passed() const { return passed_; }
  int failed() const { return failed_; }

 private:
  void report(const std::string& what) const;
  int passed_ = 0, failed_ = 0;
};

struct Options {
  std::string dump;    // folder for raw step results; empty: none
  bool quick = false;  // fewer repeats, for runs under a checking tool
};

// Hash of a fixed problem's output bits, or the error: what a fresh process prints with --hash.
std::string fixed_problem_hash(Runner& runner);

void test_steps(Runner& runner, Checks& checks, const Options& options);
void test_layouts(Runner& runner, Checks& checks, const Options& options);
void test_rows(Runner& runner, Checks& checks, const Options& options);
void test_order(Runner& runner, Checks& checks, const Options& options);
void test_chunks(Runner& runner, Checks& checks, const Options& options);
void test_repeats(Runner& runner, Checks& checks, const Options& options);
void test_large(Runner& runner, Checks& checks, const Options& options);
void test_wrong(Runner& runner, Checks& checks, const Options& options);
void test_errors(Runner& runner, Checks& checks, const Options& options);
void test_each(Runner& runner, Checks& checks, const Options& options);
void test_capi(Runner& runner, Checks& checks, const Options& options);

}  // namespace amk::det_gemm::gpu_test
