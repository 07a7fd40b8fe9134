#include "kernels/evaluator/cuda_runtime.h"

#include <cstddef>
#include <cstring>

namespace amk::cuda {

Result<Context> Context::open(int ordinal) {
  AMK_TRY(d, driver());
  int count = 0;
  AMK_CU(*d, cuDeviceGetCount, &count);
  if (ordinal < 0 || ordinal >= count) {
    return fail(ErrorKind::Unavailable, "there is no GPU " + std::to_string(ordinal) + "; the driver shows " + std::to_string(count),
                {{"field", "ordinal"}, {"value", ordinal}, {"gpus", count}});
  }
  Context context;
  AMK_CU(*d, cuDeviceGet, &context.device_, ordinal);
  AMK_CU(*d, cuDevicePrimaryCtxRetain, &context.context_, context.device_);
  context.driver_ = d;
  AMK_CHECK(context.make_current());
  return context;
}

Context::~Context() {
  if (driver_ != nullptr) driver_->cuDevicePrimaryCtxRelease(device_);
}

Status Context::make_current() const {
  AMK_CU(*driver_, cuCtxSetCurrent, context_);
  return {};
}

Status Context::synchronize() const {
  AMK_CU(*driver_, cuCtxSynchronize);
  return {};
}

Status Context::reset_persisting_l2() const {
  AMK_CU(*driver_, cuCtxResetPersistingL2Cache);
  return {};
}

Result<int> Context::attribute(abi::DeviceAttribute attribute) const {
  int value = 0;
  AMK_CU(*driver_, cuDeviceGetAttribute, &value, attribute, device_);
  return value;
}

Result<std::pair<std::size_t, std::size_t>> Context::memory_info() const {
  std::size_t free_bytes = 0, total_bytes = 0;
  AMK_CU(*driver_, cuMemGetInfo, &free_bytes, &total_bytes);
  return std::pair(free_bytes, total_bytes);
}

Result<Memory> Memory::allocate(std::size_t bytes) {
  AMK_TRY(d, driver());
  Memory memory;
  AMK_CU(*d, cuMemAlloc, &memory.pointer_, bytes == 0 ? 1 : bytes);
  memory.bytes_ = bytes;
  return memory;
}

Memory::~Memory() {
  if (pointer_ != 0) (*driver())->cuMemFree(pointer_);
}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Result<HostMemory> HostMemory::allocate(std::size_t bytes) {
  AMK_TRY(d, driver());
  HostMemory memory;
  AMK_CU(*d, cuMemHostAlloc, &memory.pointer_, bytes == 0 ? 1 : bytes, 0);
  memory.bytes_ = bytes;
  return memory;
}

HostMemory::~HostMemory() {
  if (pointer_ != nullptr) (*driver())->cuMemFreeHost(pointer_);
}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Result<Stream> Stream::create() {
  AMK_TRY(d, driver());
  Stream stream;
  AMK_CU(*d, cuStreamCreate, &stream.stream_, abi::kStreamNonBlocking);
  return stream;
}

Stream::~Stream() {
  if (stream_ != nullptr) (*driver())->cuStreamDestroy(stream_);
}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(stream_, other.stream_);
  return *this;
}

Status Stream::synchronize() const {
  AMK_TRY(d, driver());
  AMK_CU(*d, cuStreamSynchronize, stream_);
  return {};
}

Result<bool> Stream::done() const {
  AMK_TRY(d, driver());
  const abi::Result code = d->cuStreamQuery(stream_);
  if (code == abi::kNotReady) return false;
  AMK_CHECK(d->check(code, "cuStreamQuery", std::source_location::current()));
  return true;
}

Result<Event> Event::create() {
  AMK_TRY(d, driver());
  Event event;
  AMK_CU(*d, cuEventCreate, &event.event_, abi::kEventDefault);
  return event;
}

Event::~Event() {
  if (event_ != nullptr) (*driver())->cuEventDestroy(event_);
}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}

Status Event::record(const Stream& stream) const {
  AMK_TRY(d, driver());
  AMK_CU(*d, cuEventRecord, event_, stream.handle());
  return {};
}

Status Event::synchronize() const {
  AMK_TRY(d, driver());
  AMK_CU(*d, cuEventSynchronize, event_);
  return {};
}

Result<double> Event::elapsed_us(const Event& start, const Event& end) {
  AMK_TRY(d, driver());
  float milliseconds = 0;
  AMK_CU(*d, cuEventElapsedTime, &milliseconds, start.event_, end.event_);
  return static_cast<double>(milliseconds) * 1000.0;
}

Result<int> Function::attribute(abi::FunctionAttribute attribute) const {
  AMK_TRY(d, driver());
  int value = 0;
  AMK_CU(*d, cuFuncGetAttribute, &value, attribute, function_);
  return value;
}

Status Function::allow_dynamic_shared(int bytes) const {
  AMK_TRY(d, driver());
  AMK_CU(*d, cuFuncSetAttribute, function_, abi::FunctionAttribute::MaxDynamicSharedBytes, bytes);
  return {};
}

Result<int> Function::blocks_per_sm(int block_threads, std::size_t dynamic_shared_bytes) const {
  AMK_TRY(d, driver());
  int blocks = 0;
  AMK_CU(*d, cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function_, block_threads, dynamic_shared_bytes);
  return blocks;
}

Status Function::launch(const Launch& launch, const Stream& stream, std::span<void* const> arguments) const {
  AMK_TRY(d, driver());
  std::array<abi::LaunchAttribute, 3> attributes{};
  unsigned count = 0;
  const auto add = [&](abi::LaunchAttributeId id) -> abi::LaunchAttributeValue& {
    abi::LaunchAttribute& attribute = attributes[count++];
    attribute.id = id;
    return attribute.value;
  };
  if (launch.cooperative) add(abi::LaunchAttributeId::Cooperative).cooperative = 1;
  if (launch.programmatic_dependent) add(abi::LaunchAttributeId::ProgrammaticStreamSerialization).programmatic_stream_serialization = 1;
  if (launch.cluster.x * launch.cluster.y * launch.cluster.z > 1) {
    add(abi::LaunchAttributeId::ClusterDimension).cluster = {launch.cluster.x, launch.cluster.y, launch.cluster.z};
  }
  const abi::LaunchConfig config{
      launch.grid.x,   launch.grid.y,     launch.grid.z, launch.block.x, launch.block.y, launch.block.z, launch.dynamic_shared_bytes,
      stream.handle(), attributes.data(), count};
  AMK_CU(*d, cuLaunchKernelEx, &config, function_, const_cast<void**>(arguments.data()), nullptr);
  return {};
}

Result<Module> Module::load(std::span<const std::byte> cubin) {
  AMK_TRY(d, driver());
  Module module;
  AMK_CU(*d, cuModuleLoadData, &module.module_, cubin.data());
  return module;
}

Module::~Module() {
  if (module_ != nullptr) (*driver())->cuModuleUnload(module_);
}

Module& Module::operator=(Module&& other) noexcept {
  std::swap(module_, other.module_);
  return *this;
}

Result<Function> Module::function(const std::string& name) const {
  AMK_TRY(d, driver());
  abi::Function function = nullptr;
  AMK_CU(*d, cuModuleGetFunction, &function, module_, name.c_str());
  return Function(function);
}

Result<std::pair<DevicePtr, std::size_t>> Module::global(const std::string& name) const {
  AMK_TRY(d, driver());
  DevicePtr pointer = 0;
  std::size_t bytes = 0;
  AMK_CU(*d, cuModuleGetGlobal, &pointer, &bytes, module_, name.c_str());
  return std::pair(pointer, bytes);
}

Status copy_to_device(DevicePtr to, const void* from, std::size_t bytes, const Stream& stream) {
  AMK_TRY(d, driver());
  AMK_CU(*d, cuMemcpyHtoDAsync, to, from, bytes, stream.handle());
  return {};
}

Status copy_to_host(void* to, DevicePtr from, std::size_t bytes, const Stream& stream) {
  AMK_TRY(d, driver());
  AMK_CU(*d, cuMemcpyDtoHAsync, to, from, bytes, stream.handle());
  return {};
}

Status copy_on_device(DevicePtr to, DevicePtr from, std::size_t bytes, const Stream& stream) {
  AMK_TRY(d, driver());
  AMK_CU(*d, cuMemcpyDtoDAsync, to, from, bytes, stream.handle());
  return {};
}

Status fill_u8(DevicePtr to, unsigned char value, std::size_t bytes, const Stream& stream) {
  AMK_TRY(d, driver());
  AMK_CU(*d, cuMemsetD8Async, to, value, bytes, stream.handle());
  return {};
}

Status fill_u32(DevicePtr to, std::uint32_t value, std::size_t words, const Stream& stream) {
  AMK_TRY(d, driver());
  AMK_CU(*d, cuMemsetD32Async, to, value, words, stream.handle());
  return {};
}

}  // namespace amk::cuda
