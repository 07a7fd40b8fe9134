// The gate of one isolated instruction kind: its outputs in every layer, for random inputs, against fp32 on the reference VM. Immutable, thread-safe.
#pragma once

#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/model/weights.h"
#include "core/reference/reference_vm.h"
#include "kernels/megakernel/instruction_data.h"
#include "kernels/verdict.h"

namespace amk {

// Fills a VM's inputs for a draw, runs it, and returns its outputs, slice after slice.
Result<std::vector<float>> run_on_vm(ReferenceVm& vm, const Program& program, const InstructionDraw& draw, const NumericFormat& gpu);

class InstructionReference {
 public:
  // Runs the kind unfused, in order, on one queue after another: in fp32, and in the GPU's own storage formats (attention several times, since how
  // its keys' weights round is chance). gpu.weights = fp32: the candidate computes in fp32 as well, and only rounding of sums is allowed. Cancelled
  // when `stop` is requested.
  static Result<std::shared_ptr<const InstructionReference>> create(const std::shared_ptr<const Weights>& weights, std::string_view op, int max_seq,
                                                                    const NumericFormat& gpu, std::vector<InstructionDraw> draws,
                                                                    const std::stop_token& stop);
  const std::vector<InstructionDraw>& draws() const { return draws_; }
  std::size_t outputs() const { return expected_.front().size(); }  // floats of one draw

  struct Outcome {
    Correctness correctness;  // kl is 0 but for lm_head; top1_agreement: share of output slices whose largest element is the reference's
    bool correct = false;
    std::string failure;
  };
  // `got`: [draw][outputs()].
  //   Per output slice and draw: max-abs error at most kMostOver times, root-mean-square error at most kGateMargin times that of the low-precision
  //   runs (their worst over the draws of this slice), each plus kSumRounding of the slice's root mean square for the order of fp32 sums.
  Outcome compare(std::span<const float> got, bool repeated) const;

 private:
  struct Segment {
    std::string name;
    std::size_t first = 0, count = 0;
    double native_max = 0, native_rms = 0;  // of errors, worst draw and run
  };
  void measure_native(std::size_t draw, std::span<const float> native);
  std::string op_;
  std::vector<InstructionDraw> draws_;
  std::vector<Segment> segments_;
  std::vector<std::vector<float>> expected_;
};

inline constexpr double kMostOver = 2.0;
inline constexpr double kSumRounding = 1e-4;

}  // namespace amk
