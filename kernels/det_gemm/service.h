// The worker's half of judging a deterministic GEMM. Requests:
//   {"op":"open", "workload", "gpu_ordinal", "cache"}      operands drawn, the plain kernel held against the CPU oracle
//   {"op":"check", "config", "incumbent"?}                 one whole judgement -> {"verdict"} and, where it was timed, what timed_verdict.h says
#pragma once

#include <memory>
#include <string>

#include "kernels/det_gemm/gpu_judge.h"
#include "kernels/device_judge.h"

namespace amk::det_gemm {

class GemmService final : public DeviceService {
 public:
  explicit GemmService(bool faults) : faults_(faults) {}
  Result<Message> handle(const Message& request) override;

 private:
  Result<Message> open(const Json& body);
  Result<Message> check(const Json& body);
  bool faults_;  // tests: {"fault": "hang" | "crash" | "exit"} in a check is obeyed
  std::string key_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<GpuJudge> judge_;
};

}  // namespace amk::det_gemm
