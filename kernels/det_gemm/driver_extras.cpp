#include "kernels/det_gemm/driver_extras.h"

#include <source_location>

namespace amk::det_gemm {
namespace {

Result<DriverExtras> load() {
  AMK_TRY(d, cuda::driver());
  DriverExtras extras;
  AMK_CHECK(d->library.load(extras.cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled"));
  AMK_CHECK(d->library.load(extras.cuOccupancyMaxActiveClusters, "cuOccupancyMaxActiveClusters"));
  AMK_CHECK(d->library.load(extras.cuStreamBeginCapture, "cuStreamBeginCapture_v2"));
  AMK_CHECK(d->library.load(extras.cuStreamEndCapture, "cuStreamEndCapture"));
  AMK_CHECK(d->library.load(extras.cuGraphInstantiate, "cuGraphInstantiateWithFlags"));
  AMK_CHECK(d->library.load(extras.cuGraphLaunch, "cuGraphLaunch"));
  AMK_CHECK(d->library.load(extras.cuGraphExecDestroy, "cuGraphExecDestroy"));
  AMK_CHECK(d->library.load(extras.cuGraphDestroy, "cuGraphDestroy"));
  AMK_CHECK(d->library.load(extras.cuPointerGetAttribute, "cuPointerGetAttribute"));
  return extras;
}

Status check(int code, const char* call, const std::source_location& place = std::source_location::current()) {
  AMK_TRY(d, cuda::driver());
  return d->check(code, call, place);
}

constexpr int kCaptureThreadLocal = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

}  // namespace

Result<const DriverExtras*> driver_extras() {
  static const Result<DriverExtras> extras = load();
  if (!extras) return tl::unexpected<Error>(extras.error());
  return &*extras;
}

Result<Graph> Graph::begin(const cuda::Stream& stream) {
  AMK_TRY(extras, driver_extras());
  AMK_CHECK(check(extras->cuStreamBeginCapture(stream.handle(), kCaptureThreadLocal), "cuStreamBeginCapture"));
  return Graph();
}

Status Graph::end(const cuda::Stream& stream) {
  AMK_TRY(extras, driver_extras());
  GraphOpaque* graph = nullptr;
  AMK_CHECK(check(extras->cuStreamEndCapture(stream.handle(), &graph), "cuStreamEndCapture"));
  const Status status = check(extras->cuGraphInstantiate(&exec_, graph, 0), "cuGraphInstantiate");
  extras->cuGraphDestroy(graph);
  return status;
}

Graph::~Graph() {
  if (exec_ == nullptr) return;
  if (auto extras = driver_extras()) (*extras)->cuGraphExecDestroy(exec_);
}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(exec_, other.exec_);
  return *this;
}

Status Graph::launch(const cuda::Stream& stream) const {
  AMK_TRY(extras, driver_extras());
  return check(extras->cuGraphLaunch(exec_, stream.handle()), "cuGraphLaunch");
}

}  // namespace amk::det_gemm
