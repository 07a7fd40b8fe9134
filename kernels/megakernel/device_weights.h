// A model's weights on the GPU, in one layout: packed once, shared by every candidate of that layout. Read-only after upload.
#pragma once

#include <memory>

#include "core/model/weights.h"
#include "kernels/evaluator/build_cache.h"
#include "kernels/evaluator/cuda_runtime.h"
#include "kernels/megakernel/gpu_layout.h"

namespace amk {

class DeviceWeights {
 public:
  // Needs a current context. Unavailable when the GPU's memory does not suffice, with the bytes needed and free.
  static Result<DeviceWeights> upload(const Weights& weights, WeightLayout layout, const Compiler& compiler, const BuildCache& cache,
                                      const std::string& architecture, const cuda::Stream& stream);

  cuda::DevicePtr matrices() const { return matrices_.pointer(); }
  cuda::DevicePtr vectors() const { return vectors_.pointer(); }
  cuda::DevicePtr embedding() const { return embedding_.pointer(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(matrices_.bytes() + vectors_.bytes() + embedding_.bytes()); }
  WeightLayout layout() const { return layout_; }
  // True while every byte is as it was uploaded: no kernel may write weights.
  Result<bool> intact(const cuda::Stream& stream) const;

 private:
  WeightLayout layout_ = WeightLayout::Packed;
  Result<std::uint64_t> checksum(const cuda::Stream& stream) const;
  cuda::Memory matrices_, vectors_, embedding_, sum_;
  cuda::Module module_;
  cuda::Function checksum_kernel_;
  std::uint64_t uploaded_sum_ = 0;
};

}  // namespace amk
