// One model on one GPU target, on the CPU: space, lowering, proof, prediction, and correctness by the ReferenceVM against the oracle.
// Thread-safe; weights and oracle logits are made on first use and shared. docs/megakernel-family.md.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "core/model/load.h"
#include "core/program/lower.h"
#include "core/program/program.h"
#include "core/schedule/config.h"
#include "core/target/cost_model.h"
#include "kernels/family.h"
#include "kernels/megakernel/stand_in.h"

namespace amk {

class CpuReference;

// Positions that programs are lowered for, unless the model has fewer; and the KV entries read where latency is predicted and compared.
inline constexpr int kDefaultMaxSeq = 4096;
inline constexpr int kPredictPosition = 256;

class MegakernelWorkload final : public Workload {
 public:
  // Unsupported, naming the field, when the model cannot be packed. Touches no weights.
  static Result<std::shared_ptr<const MegakernelWorkload>> create(const ModelRef& ref, const GpuTarget& target);

  const std::string& id() const override { return ref_.spec.name; }
  const std::string& regime() const override { return regime_; }
  const GpuTarget& target() const override { return target_; }
  Status unchanged() const override;
  // Names the weights: what is kept of a model by its name alone would outlive a change of its files.
  std::string content() const { return id() + "\n" + stamp_; }
  const SearchSpace& space() const override { return space_; }
  Json features() const override;

  // Missing keys take the space's defaults, which fit this GPU's shared memory.
  Result<Json> canonical(const Json& config) const override;
  Json default_config() const override;
  Result<Point> point_of(const Json& canonical) const override;
  Json config_at(const Point& point) const override;
  std::string schedule_id(const Json& canonical) const override;
  Result<Json> tuned() const override;

  using Workload::predict_us;
  Result<double> predict_us(const Json& canonical, const Progress& progress) const override;
  Result<double> rank_us(const Json& canonical) const override;
  Result<double> screen_us(const Json& canonical) const override;
  Result<Verdict> judge_on_cpu(const Json& canonical, const Progress& progress) const override;
  Result<Json> compile(const Json& canonical) const override;

  const ModelRef& model() const { return ref_; }
  int batch() const { return ref_.batch; }
  LoweringTarget lowering_target() const;
  Result<ScheduleConfig> parse(const Json& config) const;
  // Lowered for this GPU, proved, and planned: it fits the device. Rejected carries {"rule", "message", "witness"}, whoever refused it. The last few
  // answers are kept: a search predicts what it then judges.
  Result<std::shared_ptr<const Program>> proved_program(const ScheduleConfig& config, const Progress& progress = {}) const;

 private:
  struct Proved {
    std::string schedule_id;
    Result<std::shared_ptr<const Program>> program;
  };
  MegakernelWorkload(ModelRef ref, GpuTarget target);
  Result<std::shared_ptr<const Program>> prove(const ScheduleConfig& config, const Progress& progress) const;
  double predicted(const ScheduleConfig& config, const std::string& id, const Program& program) const;  // and remembers it
  Status fit_defaults();
  Result<std::vector<std::shared_ptr<const CpuReference>>> references(int kv_block, const Progress& progress) const;  // [sequence]
  Status check_on_cpu(const ScheduleConfig& config, const Program& program, const Progress& progress, Verdict& verdict) const;

  ModelRef ref_;
  std::string stamp_;  // of the checkpoint's files when this was opened
  GpuTarget target_;
  std::string regime_;
  SearchSpace space_;
  ScheduleConfig defaults_;
  Executed executed_;
  mutable std::mutex proved_mutex_;
  mutable std::list<Proved> proved_;  // most recently used first
  mutable std::mutex predicted_mutex_;
  mutable std::unordered_map<std::string, double> predicted_us_;  // by schedule id: what a search predicted, an agent's suggestions are ranked by
  std::uint64_t token_seed_ = 0;                                  // fresh for every opening: no candidate can know the tokens
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Weights> weights_;  // of what is executed
  // By wanted positions (one per size of KV block), and sequence.
  mutable std::map<std::pair<int, int>, std::shared_ptr<const CpuReference>> references_;
};

// The predicted half of a verdict on a correct candidate: latency, floor, share of it, regions.
void fill_prediction(Verdict& verdict, const Prediction& prediction);
// Where the verdict's latency goes, by the shares that the cost model predicts.
void fill_regions(Verdict& verdict, const Prediction& prediction);

}  // namespace amk
