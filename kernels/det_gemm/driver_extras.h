// Driver entry points that only this family and its benchmarks use: tensor maps, cluster occupancy, graphs,
// and whose memory a pointer is. Thread-safe.
#pragma once

#include <cstdint>

#include "core/base/error.h"
#include "kernels/evaluator/cuda_driver.h"
#include "kernels/evaluator/cuda_runtime.h"

namespace amk::det_gemm {

struct alignas(64) TensorMapBytes {
  std::uint64_t opaque[16];
};

struct GraphOpaque;
struct GraphExecOpaque;

struct DriverExtras {
  using R = cuda::abi::Result;
  // cuda.h: cuTensorMapEncodeTiled with its enumerations as ints.
  R(*cuTensorMapEncodeTiled)
  (TensorMapBytes* map, int type, std::uint32_t rank, void* address, const std::uint64_t* dims, const std::uint64_t* strides,
   const std::uint32_t* box, const std::uint32_t* element_strides, int interleave, int swizzle, int promotion, int fill) = nullptr;
  R (*cuOccupancyMaxActiveClusters)(int* clusters, cuda::abi::Function function, const cuda::abi::LaunchConfig* config) = nullptr;
  R (*cuStreamBeginCapture)(cuda::abi::Stream stream, int mode) = nullptr;
  R (*cuStreamEndCapture)(cuda::abi::Stream stream, GraphOpaque** graph) = nullptr;
  R (*cuGraphInstantiate)(GraphExecOpaque** exec, GraphOpaque* graph, unsigned long long flags) = nullptr;
  R (*cuGraphLaunch)(GraphExecOpaque* exec, cuda::abi::Stream stream) = nullptr;
  R (*cuGraphExecDestroy)(GraphExecOpaque* exec) = nullptr;
  R (*cuGraphDestroy)(GraphOpaque* graph) = nullptr;
  R (*cuPointerGetAttribute)(void* value, int attribute, cuda::abi::DevicePtr pointer) = nullptr;
};

Result<const DriverExtras*> driver_extras();  // once per process

// Work recorded from a stream, replayed as one launch. Movable; not thread-safe.
class Graph {
 public:
  // Records what `body` puts on the stream.
  template <class Body>
  static Result<Graph> record(const cuda::Stream& stream, Body&& body) {
    AMK_TRY(graph, begin(stream));
    const Status status = body();
    AMK_CHECK(graph.end(stream));  // capture must end whatever happened
    if (!status) return tl::unexpected<Error>(status.error());
    return graph;
  }
  Graph() = default;
  ~Graph();
  Graph(Graph&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept;
  Status launch(const cuda::Stream& stream) const;

 private:
  static Result<Graph> begin(const cuda::Stream& stream);
  Status end(const cuda::Stream& stream);
  GraphExecOpaque* exec_ = nullptr;
};

}  // namespace amk::det_gemm
