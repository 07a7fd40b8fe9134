#include <cmath>
#include <cstring>
#include <utility>

#include "core/reference/forward.h"
#include "kernels/megakernel/device_program.h"

namespace amk {
namespace {

constexpr std::uint64_t kAlign = 256;
std::uint64_t aligned(std::uint64_t value) { return (value + kAlign - 1) / kAlign * kAlign; }

}  // namespace

Result<DeviceSequence> DeviceSequence::create(const ModelSpec& spec, const NumericFormat& format, int max_seq, const cuda::Stream& stream,
                                              int batch) {
  DeviceSequence s;
  s.spec_ = spec;
  s.max_seq_ = max_seq;
  s.batch_ = batch;
  s.kv_bytes_ = std::int64_t{2} * spec.layers * spec.kv_rows() * max_seq * dtype_bytes(format.kv);
  AMK_TRY(kv, cuda::Memory::allocate(static_cast<std::size_t>(batch * s.kv_bytes_ + 2 * kGuardBytes)));
  s.kv_ = std::move(kv);
  const std::size_t half = static_cast<std::size_t>(spec.head_dim / 2);
  std::vector<float> table(static_cast<std::size_t>(max_seq) * half * 2);
  for (int p = 0; p < max_seq; ++p) {
    const std::size_t at = static_cast<std::size_t>(p) * half * 2;
    rope_cos_sin(spec, p, std::span(table).subspan(at, half), std::span(table).subspan(at + half, half));
  }
  AMK_TRY(rope, cuda::Memory::allocate(table.size() * 4));
  s.rope_ = std::move(rope);
  AMK_CHECK(cuda::copy_to_device(s.rope_.pointer(), table.data(), table.size() * 4, stream));
  AMK_CHECK(cuda::fill_u8(s.kv_.pointer(), kGuardByte, static_cast<std::size_t>(kGuardBytes), stream));
  AMK_CHECK(cuda::fill_u8(s.kv(batch), kGuardByte, static_cast<std::size_t>(kGuardBytes), stream));
  AMK_CHECK(s.allocate_outputs(stream));
  AMK_CHECK(s.poison_kv(stream));
  AMK_CHECK(stream.synchronize());
  return s;
}

// guard | tokens | guard | next tokens | guard | logits | guard
Status DeviceSequence::allocate_outputs(const cuda::Stream& stream) {
  tokens_at_ = kGuardBytes;
  next_at_ = aligned(tokens_at_ + token_bytes()) + kGuardBytes;
  logits_at_ = aligned(next_at_ + next_bytes()) + kGuardBytes;
  AMK_TRY(outputs, cuda::Memory::allocate(aligned(logits_at_ + logit_bytes()) + kGuardBytes));
  outputs_ = std::move(outputs);
  AMK_CHECK(cuda::fill_u8(outputs_.pointer(), kGuardByte, outputs_.bytes(), stream));
  AMK_CHECK(cuda::fill_u8(tokens(), 0, token_bytes(), stream));
  return poison_outputs(stream);
}

Status DeviceSequence::hold_steps(int steps, const cuda::Stream& stream) {
  if (steps <= steps_) return {};
  std::vector<int> kept(static_cast<std::size_t>(token_bytes() / 4));
  AMK_CHECK(cuda::copy_to_host(kept.data(), tokens(), kept.size() * 4, stream));
  AMK_CHECK(stream.synchronize());
  steps_ = steps;
  AMK_CHECK(allocate_outputs(stream));
  AMK_CHECK(cuda::copy_to_device(tokens(), kept.data(), kept.size() * 4, stream));
  return stream.synchronize();
}

Status DeviceSequence::poison_outputs(const cuda::Stream& stream) const {
  AMK_CHECK(cuda::fill_u32(next_token(), kPoisonWord, next_bytes() / 4, stream));
  return cuda::fill_u32(logits(), kPoisonWord, logit_bytes() / 4, stream);
}

Status DeviceSequence::poison_kv(const cuda::Stream& stream) const {
  return cuda::fill_u8(kv(), 0xff, of(batch_) * static_cast<std::size_t>(kv_bytes_), stream);  // NaN in bf16, fp16 and fp32
}

Status DeviceSequence::set_tokens(std::span<const int> values, int first, const cuda::Stream& stream, int seq) const {
  if (seq < 0 || seq >= batch_) return bad_field("seq", seq, "0 to " + std::to_string(batch_ - 1));
  if (first < 0 || first + static_cast<std::int64_t>(values.size()) > max_seq_ + 1)
    return bad_field("tokens", first, "positions within the sequence");
  for (const int t : values) {
    if (t < 0 || t >= spec_.vocab) return bad_field("token", t, "0 to " + std::to_string(spec_.vocab - 1));
  }
  if (values.empty()) return {};
  AMK_CHECK(cuda::copy_to_device(tokens(seq) + static_cast<std::uint64_t>(first) * 4, values.data(), values.size() * 4, stream));
  return stream.synchronize();  // the source is the caller's
}

Status DeviceSequence::read_logits(std::vector<float>& out, const cuda::Stream& stream, int seq, int step) const {
  out.resize(static_cast<std::size_t>(spec_.vocab));
  AMK_CHECK(cuda::copy_to_host(out.data(), logits(seq, step), out.size() * 4, stream));
  return stream.synchronize();
}

Result<std::vector<float>> DeviceSequence::read_logits(const cuda::Stream& stream, int seq, int step) const {
  std::vector<float> out;
  AMK_CHECK(read_logits(out, stream, seq, step));
  return out;
}

Result<int> DeviceSequence::read_next_token(const cuda::Stream& stream, int seq, int step) const {
  int token = 0;
  AMK_CHECK(cuda::copy_to_host(&token, next_token(seq, step), 4, stream));
  AMK_CHECK(stream.synchronize());
  return token;
}

Result<std::vector<int>> DeviceSequence::read_tokens(int first, int count, const cuda::Stream& stream, int seq) const {
  if (first < 0 || count < 0 || first + count > max_seq_ + 1) return bad_field("tokens", first, "positions within the sequence");
  std::vector<int> out(static_cast<std::size_t>(count));
  if (count == 0) return out;
  AMK_CHECK(cuda::copy_to_host(out.data(), tokens(seq) + static_cast<std::uint64_t>(first) * 4, out.size() * 4, stream));
  AMK_CHECK(stream.synchronize());
  return out;
}

Result<std::int64_t> DeviceSequence::damaged_guards(const cuda::Stream& stream) const {
  constexpr std::uint64_t kGuard = kGuardBytes;
  const std::pair<cuda::DevicePtr, std::uint64_t> zones[] = {{outputs_.pointer(), tokens_at_},
                                                             {tokens() + token_bytes(), next_at_ - tokens_at_ - token_bytes()},
                                                             {next_token() + next_bytes(), logits_at_ - next_at_ - next_bytes()},
                                                             {logits() + logit_bytes(), outputs_.bytes() - logits_at_ - logit_bytes()},
                                                             {kv_.pointer(), kGuard},
                                                             {kv(batch_), kGuard}};
  std::int64_t damaged = 0;
  std::vector<unsigned char> bytes;
  for (const auto& [at, size] : zones) {
    bytes.resize(size);
    AMK_CHECK(cuda::copy_to_host(bytes.data(), at, size, stream));
    AMK_CHECK(stream.synchronize());
    for (const unsigned char b : bytes) damaged += b != kGuardByte ? 1 : 0;
  }
  return damaged;
}

}  // namespace amk
