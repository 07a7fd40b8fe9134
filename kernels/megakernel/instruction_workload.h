// One instruction kind of one model on one GPU target: the workload "MODEL#op". Its space is the knobs that the kind reads; what a verdict calls
// latency is the kind's time in every layer of one token. Thread-safe. docs/tune-instruction.md.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "core/target/cost_model.h"
#include "kernels/megakernel/instruction_check.h"
#include "kernels/megakernel/workload.h"

namespace amk {

class InstructionWorkload final : public Workload {
 public:
  // InvalidArgument naming the accepted ops; Unsupported when the kind does not fit the GPU alone.
  static Result<std::shared_ptr<const InstructionWorkload>> create(std::shared_ptr<const MegakernelWorkload> model, std::string_view op);

  const std::string& id() const override { return id_; }
  const std::string& regime() const override { return model_->regime(); }
  const GpuTarget& target() const override { return model_->target(); }
  const SearchSpace& space() const override { return space_; }
  Status unchanged() const override { return model_->unchanged(); }
  Json features() const override;

  // InvalidArgument for a knob that the kind does not read and that is not the model's default: it would name the same kernel twice.
  Result<Json> canonical(const Json& config) const override;
  Json default_config() const override { return model_->default_config(); }
  Result<Point> point_of(const Json& canonical) const override;
  Json config_at(const Point& point) const override;
  std::string schedule_id(const Json& canonical) const override { return model_->schedule_id(canonical); }

  using Workload::predict_us;
  Result<double> predict_us(const Json& canonical, const Progress& progress) const override;
  Result<Verdict> judge_on_cpu(const Json& canonical, const Progress& progress) const override;
  Result<Json> compile(const Json& canonical) const override;

  const MegakernelWorkload& model() const { return *model_; }
  const std::string& op() const { return op_; }
  Result<ScheduleConfig> parse(const Json& config) const;
  Roofline floor(int position) const;
  std::int64_t weight_bytes() const;
  // Lowered alone for this GPU, proved, planned.
  Result<Program> proved_program(const ScheduleConfig& config, const Progress& progress = {}) const;

 private:
  InstructionWorkload(std::shared_ptr<const MegakernelWorkload> model, std::string_view op);
  Point whole_point(const Point& point) const;  // of the model's space
  Result<std::shared_ptr<const InstructionReference>> reference(const Progress& progress) const;
  Status check_on_cpu(const ScheduleConfig& config, const Program& program, const Progress& progress, Verdict& verdict) const;

  std::shared_ptr<const MegakernelWorkload> model_;
  std::string op_, id_;
  std::vector<std::size_t> knobs_;  // [knob of space_]: its index in the model's space
  SearchSpace space_;
  Executed executed_;
  std::uint64_t seed_ = 0;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Weights> weights_;
  mutable std::shared_ptr<const InstructionReference> reference_;
};

}  // namespace amk
