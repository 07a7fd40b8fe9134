#include "kernels/evaluator/probe.h"

#include <vector>

namespace amk {

Status probe_gpu(const cuda::Context& context) {
  AMK_CHECK(context.make_current());
  constexpr std::size_t kWords = 1 << 16;
  AMK_TRY(stream, cuda::Stream::create());
  AMK_TRY(from, cuda::Memory::allocate(kWords * 4));
  AMK_TRY(to, cuda::Memory::allocate(kWords * 4));
  std::vector<std::uint32_t> sent(kWords), received(kWords, 0);
  for (std::size_t i = 0; i < kWords; ++i) sent[i] = static_cast<std::uint32_t>(i * 2654435761u);
  AMK_CHECK(cuda::copy_to_device(from.pointer(), sent.data(), kWords * 4, stream));
  AMK_CHECK(cuda::copy_on_device(to.pointer(), from.pointer(), kWords * 4, stream));
  AMK_CHECK(cuda::copy_to_host(received.data(), to.pointer(), kWords * 4, stream));
  AMK_CHECK(stream.synchronize());
  if (sent != received) return fail(ErrorKind::Unavailable, "the GPU returned other bytes than it was given: the machine is broken, not a candidate");
  return {};
}

}  // namespace amk
