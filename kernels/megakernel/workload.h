// One model on one GPU target, on the CPU: space, lowering, proof, prediction, and correctness by the ReferenceVM against the oracle.
// Thread-safe; weights and oracle logits are made on first use and shared.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/model/load.h"
#include "core/program/lower.h"
#include "core/program/program.h"
#include "core/schedule/config.h"
#include "kernels/family.h"

namespace amk {

// Positions that programs are lowered for, unless the model has fewer; and the KV length at which latency is predicted and compared.
inline constexpr int kDefaultMaxSeq = 4096;
inline constexpr int kPredictPosition = 256;
// Larger models are not executed on the CPU: their lowering is checked on a scaled-down twin, and the verdict's notes say so.
inline constexpr std::int64_t kExecutedParametersLimit = 20'000'000;

// The same architecture switches, head_dim and GQA ratio with few layers, heads and narrow matrices.
ModelSpec scaled_down(const ModelSpec& spec);

class MegakernelWorkload final : public Workload {
 public:
  static Result<std::unique_ptr<MegakernelWorkload>> create(const ModelRef& ref, const GpuTarget& target);

  const std::string& id() const override { return ref_.spec.name; }
  const std::string& regime() const override { return regime_; }
  const GpuTarget& target() const override { return target_; }
  const SearchSpace& space() const override { return space_; }
  Json features() const override;

  Result<Json> canonical(const Json& config) const override;
  Json default_config() const override;
  Result<Point> point_of(const Json& canonical) const override;
  Json config_at(const Point& point) const override;
  std::string schedule_id(const Json& canonical) const override;

  Result<double> predict_us(const Json& canonical) const override;
  Result<Verdict> judge_on_cpu(const Json& canonical, const Progress& progress) const override;
  Result<Json> compile(const Json& canonical) const override;

  const ModelRef& model() const { return ref_; }
  LoweringTarget lowering_target() const;
  // What runs on a GPU: bf16 KV and activations; weights as stored (fp32 checkpoints stay fp32).
  static NumericFormat gpu_format(const ModelSpec& spec);

 private:
  MegakernelWorkload(ModelRef ref, GpuTarget target);
  struct Check;  // weights of what is executed, the tokens, and the oracle's logits behind each of them
  Result<std::shared_ptr<const Check>> check() const;

  ModelRef ref_;
  GpuTarget target_;
  std::string regime_;
  SearchSpace space_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Check> check_;
};

}  // namespace amk
