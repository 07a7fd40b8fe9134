// Owners for what the driver hands out: context, memory, stream, event, module; and the launch. Movable, not copyable; a destructor
// never throws and ignores errors (after a sticky error every release fails). Not thread-safe unless said.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "kernels/evaluator/cuda_driver.h"

namespace amk::cuda {

using abi::DevicePtr;

// The primary context of one device, current on the thread that opened it.
class Context {
 public:
  static Result<Context> open(int ordinal);
  ~Context();
  Context(Context&& other) noexcept : driver_(std::exchange(other.driver_, nullptr)), device_(other.device_), context_(other.context_) {}
  Context& operator=(Context&&) = delete;
  Status make_current() const;  // on the calling thread
  Status synchronize() const;
  Status reset_persisting_l2() const;
  abi::Device device() const { return device_; }
  Result<int> attribute(abi::DeviceAttribute attribute) const;
  Result<std::pair<std::size_t, std::size_t>> memory_info() const;  // free, total bytes

 private:
  Context() = default;
  const Driver* driver_ = nullptr;
  abi::Device device_ = 0;
  abi::Context context_ = nullptr;
};

class Memory {
 public:
  Memory() = default;
  static Result<Memory> allocate(std::size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept : pointer_(std::exchange(other.pointer_, 0)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept;
  DevicePtr pointer() const { return pointer_; }
  std::size_t bytes() const { return bytes_; }

 private:
  DevicePtr pointer_ = 0;
  std::size_t bytes_ = 0;
};

// Page-locked host memory: copies from it overlap and do not stage.
class HostMemory {
 public:
  HostMemory() = default;
  static Result<HostMemory> allocate(std::size_t bytes);
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  HostMemory& operator=(HostMemory&& other) noexcept;
  void* data() const { return pointer_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* pointer_ = nullptr;
  std::size_t bytes_ = 0;
};

class Stream {
 public:
  Stream() = default;
  static Result<Stream> create();  // does not wait for the default stream
  ~Stream();
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept;
  abi::Stream handle() const { return stream_; }
  Status synchronize() const;
  // True when all work is done, false while it runs; an error when it failed.
  Result<bool> done() const;

 private:
  abi::Stream stream_ = nullptr;
};

class Event {
 public:
  Event() = default;
  static Result<Event> create();
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept;
  Status record(const Stream& stream) const;
  Status synchronize() const;
  static Result<double> elapsed_us(const Event& start, const Event& end);

 private:
  abi::Event event_ = nullptr;
};

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

struct Launch {
  Dim3 grid, block;
  unsigned dynamic_shared_bytes = 0;
  bool cooperative = false;
  bool programmatic_dependent = false;  // may start before the previous kernel of the stream ended (griddepcontrol)
  Dim3 cluster;                         // 1,1,1: no cluster attribute
};

class Function {
 public:
  Function() = default;
  explicit Function(abi::Function function) : function_(function) {}
  abi::Function handle() const { return function_; }
  Result<int> attribute(abi::FunctionAttribute attribute) const;
  Status allow_dynamic_shared(int bytes) const;  // above 48 KB it must be allowed first
  Result<int> blocks_per_sm(int block_threads, std::size_t dynamic_shared_bytes) const;
  // `arguments[i]` points to the i-th parameter's value. Asynchronous: a failure inside the kernel shows at the next synchronisation.
  Status launch(const Launch& launch, const Stream& stream, std::span<void* const> arguments) const;
  template <class... Args>
  Status operator()(const Launch& how, const Stream& stream, const Args&... args) const {
    const std::array<void*, sizeof...(Args)> pointers = {const_cast<void*>(static_cast<const void*>(&args))...};
    return launch(how, stream, pointers);
  }

 private:
  abi::Function function_ = nullptr;
};

class Module {
 public:
  Module() = default;
  static Result<Module> load(std::span<const std::byte> cubin);  // wants a current context of the cubin's architecture
  ~Module();
  Module(Module&& other) noexcept : module_(std::exchange(other.module_, nullptr)) {}
  Module& operator=(Module&& other) noexcept;
  Result<Function> function(const std::string& name) const;  // extern "C" name
  Result<std::pair<DevicePtr, std::size_t>> global(const std::string& name) const;

 private:
  abi::Module module_ = nullptr;
};

Status copy_to_device(DevicePtr to, const void* from, std::size_t bytes, const Stream& stream);
Status copy_to_host(void* to, DevicePtr from, std::size_t bytes, const Stream& stream);
Status copy_on_device(DevicePtr to, DevicePtr from, std::size_t bytes, const Stream& stream);
Status fill_u8(DevicePtr to, unsigned char value, std::size_t bytes, const Stream& stream);
Status fill_u32(DevicePtr to, std::uint32_t value, std::size_t words, const Stream& stream);

}  // namespace amk::cuda
