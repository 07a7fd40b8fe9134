#include "core/reference/decoder.h"

#include <algorithm>

namespace amk {
namespace {

constexpr std::int64_t kMacsPerRange = 1 << 17;  // about 10 us of work: less is not worth waking a thread for

Status check(const std::shared_ptr<const Weights>& weights, int max_seq) {
  if (weights == nullptr) return fail(ErrorKind::InvalidArgument, "no weights were given");
  if (max_seq < 1 || max_seq > weights->spec().max_position)
    return bad_field("max_seq", max_seq, "1 to the model's max_position_embeddings, " + std::to_string(weights->spec().max_position));
  return {};
}

}  // namespace

template <class R>
Decoder<R>::Decoder(std::shared_ptr<const Weights> weights, int max_seq, int threads)
    : weights_(std::move(weights)), max_seq_(max_seq), ready_(check(weights_, max_seq)), threads_(threads) {
  if (!ready_) return;
  spec_ = weights_->spec();
  const auto bytes = static_cast<std::size_t>(2 * spec_.layers) * static_cast<std::size_t>(cache_elements()) * sizeof(float);
  auto kv = MemoryMap::anonymous(bytes);
  if (!kv) {
    ready_ = tl::unexpected<Error>(std::move(kv).error());
    return;
  }
  kv_ = std::move(*kv);
  const auto size = [](int n) { return static_cast<std::size_t>(n); };
  hidden_.resize(size(spec_.hidden));
  normed_.resize(size(spec_.hidden));
  projected_.resize(size(spec_.hidden));
  q_.resize(size(spec_.q_rows()));
  attention_.resize(size(spec_.q_rows()));
  k_.resize(size(spec_.kv_rows()));
  v_.resize(size(spec_.kv_rows()));
  gate_.resize(size(spec_.intermediate));
  up_.resize(size(spec_.intermediate));
  logits_.resize(size(spec_.vocab));
  cos_.resize(size(spec_.head_dim / 2));
  sin_.resize(size(spec_.head_dim / 2));
}

template <class R>
void Decoder<R>::rewind(int position) {
  position_ = std::clamp(position, 0, position_);
  pool_.reset();
}

template <class R>
std::span<const float> Decoder<R>::cache(int index) const {
  if (kv_.size() == 0 || index < 0 || index >= 2 * spec_.layers) return {};
  return {reinterpret_cast<const float*>(kv_.data()) + index * cache_elements(), static_cast<std::size_t>(cache_elements())};
}

template <class R>
void Decoder<R>::load_vector(WeightKind kind, int layer, std::vector<float>& out) const {
  const TensorView view = weights_->get(kind, layer);
  out.resize(static_cast<std::size_t>(view.cols));
  row_to_f32(view, 0, out);
  for (float& v : out) v = round(v);
}

template <class R>
void Decoder<R>::rms_norm(std::span<const float> in, std::span<const float> weight, std::span<float> out) const {
  float sum = 0.0f;
  kernels_.gemv(reinterpret_cast<const std::byte*>(in.data()), DType::F32, 1, static_cast<std::int64_t>(in.size()), in.data(), &sum);
  const float inverse = 1.0f / std::sqrt(sum / static_cast<float>(in.size()) + static_cast<float>(spec_.rms_eps));
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = round(weight[i] * round(in[i] * inverse));
}

template <class R>
void Decoder<R>::gemv(const TensorView& w, std::int64_t begin, std::int64_t end, const float* x, float* y, std::size_t count) const {
  if (R::exact(w.dtype)) {
    for (std::size_t t = 0; t < count; ++t, x += w.cols, y += w.rows)
      kernels_.gemv(w.data + begin * w.cols * dtype_bytes(w.dtype), w.dtype, end - begin, w.cols, x, y + begin);
    return;
  }
  // Quantised weights are used dequantised, as they are, in native arithmetic too: what that rounds is results.
  std::vector<float> row(static_cast<std::size_t>(w.cols));
  for (std::int64_t r = begin; r < end; ++r) {
    row_to_f32(w, r, row);
    if (w.dtype != DType::I8)
      for (float& v : row) v = round(v);
    for (std::size_t t = 0; t < count; ++t)
      kernels_.gemv(reinterpret_cast<const std::byte*>(row.data()), DType::F32, 1, w.cols, x + static_cast<std::int64_t>(t) * w.cols,
                    y + static_cast<std::int64_t>(t) * w.rows + r);
  }
}

// Of one token, or of several at once: the same operations on the same operands, but each weight is read from memory once.
template <class R>
void Decoder<R>::linear(WeightKind kind, WeightKind bias, int layer, std::span<const float> in, std::span<float> out) {
  const TensorView w = weights_->get(kind, layer);
  const TensorView b = bias == kind ? TensorView{} : weights_->get(bias, layer);
  std::vector<float> bias_values;
  if (b) load_vector(bias, layer, bias_values);
  const std::size_t count = in.size() / static_cast<std::size_t>(w.cols);
  constexpr std::int64_t kRowBytes = 1 << 15;  // of weights that stay in a core's cache while all tokens pass
  const std::int64_t grain = std::max<std::int64_t>(8, count == 1 ? kMacsPerRange / w.cols : kRowBytes / (w.cols * dtype_bytes(w.dtype)));
  pool_->for_ranges(w.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    gemv(w, begin, end, in.data(), out.data(), count);
    for (std::size_t t = 0; t < count; ++t) {
      float* y = out.data() + t * static_cast<std::size_t>(w.rows);
      for (std::int64_t r = begin; r < end; ++r) y[r] = round(b ? y[r] + bias_values[static_cast<std::size_t>(r)] : y[r]);
    }
  });
}

template <class R>
void Decoder<R>::norm_heads(std::span<float> heads, WeightKind kind, int layer) {
  load_vector(kind, layer, norm_weight_);
  const auto d = static_cast<std::size_t>(spec_.head_dim);
  for (std::size_t i = 0; i < heads.size(); i += d) rms_norm(heads.subspan(i, d), norm_weight_, heads.subspan(i, d));
}

template <class R>
void Decoder<R>::rotate_heads(std::span<float> heads, std::span<const float> cos, std::span<const float> sin) {
  const std::size_t half = cos.size();
  for (std::size_t base = 0; base < heads.size(); base += 2 * half)
    for (std::size_t i = 0; i < half; ++i) {
      const float a = heads[base + i];
      const float b = heads[base + half + i];
      heads[base + i] = round(round(a * cos[i]) + round(-b * sin[i]));
      heads[base + half + i] = round(round(b * cos[i]) + round(a * sin[i]));
    }
}

template <class R>
void Decoder<R>::append_kv(int layer, int position, const float* k, const float* v) {
  const auto d = static_cast<std::size_t>(spec_.head_dim);
  for (int head = 0; head < spec_.kv_heads; ++head) {
    const std::int64_t at = (static_cast<std::int64_t>(head) * max_seq_ + position) * spec_.head_dim;
    std::copy_n(k + static_cast<std::ptrdiff_t>(head * d), d, cache_data(2 * layer) + at);
    std::copy_n(v + static_cast<std::ptrdiff_t>(head * d), d, cache_data(2 * layer + 1) + at);
  }
}

template <class R>
void Decoder<R>::attend_head(int layer, int head, int position, const float* q, float* all, std::vector<float>& scores) {
  const std::int64_t d = spec_.head_dim;
  const int first = spec_.sliding_window ? std::max(0, position - *spec_.sliding_window + 1) : 0;
  const int count = position - first + 1;
  const std::int64_t at = (static_cast<std::int64_t>(head / spec_.gqa()) * max_seq_ + first) * d;
  const float* keys = cache_data(2 * layer) + at;
  const float* values = cache_data(2 * layer + 1) + at;
  scores.resize(static_cast<std::size_t>(count));
  kernels_.gemv(reinterpret_cast<const std::byte*>(keys), DType::F32, count, d, q + head * d, scores.data());

  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
  float top = -INFINITY;
  for (float& s : scores) {
    s = round(round(s) * scale);
    top = std::max(top, s);
  }
  double sum = 0.0;  // double: at long contexts an fp32 sum of small terms would lose them
  for (float& s : scores) {
    s = exact_exp(s - top);
    sum += s;
  }
  const auto total = static_cast<float>(sum);
  float* out = all + head * d;
  std::fill_n(out, d, 0.0f);
  for (int p = 0; p < count; ++p) {
    const float weight = round(scores[static_cast<std::size_t>(p)] / total);
    const float* value = values + p * d;
    for (std::int64_t i = 0; i < d; ++i) out[i] += weight * value[i];
  }
  for (std::int64_t i = 0; i < d; ++i) out[i] = round(out[i]);
}

template <class R>
void Decoder<R>::attend(int layer) {
  const std::int64_t macs = 2LL * (position_ + 1) * spec_.head_dim;
  pool_->for_ranges(spec_.heads, std::max<std::int64_t>(1, kMacsPerRange / macs), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> scores;
    for (std::int64_t head = begin; head < end; ++head) attend_head(layer, static_cast<int>(head), position_, q_.data(), attention_.data(), scores);
  });
}

template <class R>
void Decoder<R>::add_residual(std::span<const float> update) {
  for (std::size_t i = 0; i < hidden_.size(); ++i) hidden_[i] = round(hidden_[i] + update[i]);
}

template <class R>
Result<std::span<const float>> Decoder<R>::step(int token) {
  AMK_CHECK(ready_);
  if (token < 0 || token >= spec_.vocab) return bad_field("token", token, "0 to " + std::to_string(spec_.vocab - 1));
  if (position_ >= max_seq_)
    return fail(ErrorKind::InvalidArgument, "position " + std::to_string(position_) + " is past max_seq, " + std::to_string(max_seq_),
                {{"field", "position"}, {"value", position_}, {"accepted", max_seq_ - 1}});
  if (!pool_) pool_.emplace(threads_);
  using enum WeightKind;
  row_to_f32(weights_->get(Embedding), token, hidden_);
  for (float& v : hidden_) v = round(v);
  rope_cos_sin(spec_, position_, cos_, sin_);
  for (auto* table : {&cos_, &sin_})
    for (float& v : *table) v = round(v);

  for (int layer = 0; layer < spec_.layers; ++layer) {
    load_vector(AttnNorm, layer, norm_weight_);
    rms_norm(hidden_, norm_weight_, normed_);
    linear(Q, QBias, layer, normed_, q_);
    linear(K, KBias, layer, normed_, k_);
    linear(V, VBias, layer, normed_, v_);
    if (spec_.qk_norm) {
      norm_heads(q_, QNorm, layer);
      norm_heads(k_, KNorm, layer);
    }
    rotate_heads(q_, cos_, sin_);
    rotate_heads(k_, cos_, sin_);
    append_kv(layer, position_, k_.data(), v_.data());
    attend(layer);
    linear(O, OBias, layer, attention_, projected_);
    add_residual(projected_);

    load_vector(MlpNorm, layer, norm_weight_);
    rms_norm(hidden_, norm_weight_, normed_);
    linear(Gate, GateBias, layer, normed_, gate_);
    linear(Up, UpBias, layer, normed_, up_);
    for (std::size_t i = 0; i < gate_.size(); ++i) gate_[i] = round(round(exact_silu(gate_[i])) * up_[i]);
    linear(Down, DownBias, layer, gate_, projected_);
    add_residual(projected_);
  }
  load_vector(FinalNorm, 0, norm_weight_);
  rms_norm(hidden_, norm_weight_, normed_);
  linear(LmHead, LmHead, 0, normed_, logits_);
  ++position_;
  return std::span<const float>(logits_);
}

// --- several tokens at once: the same operations on the same operands as step(), so the same bits, but each weight is read from memory once and
// threads meet once an operator, not once an operator and token. A model of 135 million parameters is through 264 tokens in a twentieth of the time.

template <class R>
void Decoder<R>::norm_block(WeightKind kind, int layer, std::span<const float> in, std::span<float> out) {
  load_vector(kind, layer, norm_weight_);
  const std::size_t width = norm_weight_.size();
  pool_->for_ranges(static_cast<std::int64_t>(in.size() / width), 4, [&](std::int64_t begin, std::int64_t end) {
    for (auto t = static_cast<std::size_t>(begin); t < static_cast<std::size_t>(end); ++t)
      rms_norm(in.subspan(t * width, width), norm_weight_, out.subspan(t * width, width));
  });
}

template <class R>
Status Decoder<R>::feed_block(std::span<const int> tokens, std::span<const int> wanted, std::vector<std::vector<float>>& logits) {
  const std::size_t count = tokens.size(), hidden = hidden_.size(), half = cos_.size(), inner = gate_.size();
  const auto matrix = [&](std::size_t width) { return std::vector<float>(count * width); };
  auto x = matrix(hidden), normed = matrix(hidden), projected = matrix(hidden), q = matrix(q_.size()), attention = matrix(q_.size());
  auto k = matrix(k_.size()), v = matrix(v_.size()), gate = matrix(inner), up = matrix(inner), cos = matrix(half), sin = matrix(half);
  const auto row = [&](std::vector<float>& m, std::size_t t) { return std::span(m).subspan(t * (m.size() / count), m.size() / count); };
  const auto each = [&](const auto& body) {
    pool_->for_ranges(static_cast<std::int64_t>(count), 4, [&](std::int64_t begin, std::int64_t end) {
      for (auto t = static_cast<std::size_t>(begin); t < static_cast<std::size_t>(end); ++t) body(t);
    });
  };
  using enum WeightKind;
  for (std::size_t t = 0; t < count; ++t) {
    row_to_f32(weights_->get(Embedding), tokens[t], row(x, t));
    rope_cos_sin(spec_, position_ + static_cast<int>(t), row(cos, t), row(sin, t));
  }
  for (auto* m : {&x, &cos, &sin})
    for (float& e : *m) e = round(e);
  const auto add = [&] {
    each([&](std::size_t t) {
      const auto to = row(x, t), update = row(projected, t);
      for (std::size_t i = 0; i < hidden; ++i) to[i] = round(to[i] + update[i]);
    });
  };
  for (int layer = 0; layer < spec_.layers; ++layer) {
    norm_block(AttnNorm, layer, x, normed);
    linear(Q, QBias, layer, normed, q);
    linear(K, KBias, layer, normed, k);
    linear(V, VBias, layer, normed, v);
    for (std::size_t t = 0; t < count; ++t) {
      if (spec_.qk_norm) {
        norm_heads(row(q, t), QNorm, layer);
        norm_heads(row(k, t), KNorm, layer);
      }
      rotate_heads(row(q, t), row(cos, t), row(sin, t));
      rotate_heads(row(k, t), row(cos, t), row(sin, t));
      append_kv(layer, position_ + static_cast<int>(t), row(k, t).data(), row(v, t).data());
    }
    pool_->for_ranges(static_cast<std::int64_t>(count) * spec_.heads, 8, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> scores;
      for (std::int64_t i = begin; i < end; ++i) {
        const auto t = static_cast<std::size_t>(i / spec_.heads);
        attend_head(layer, static_cast<int>(i % spec_.heads), position_ + static_cast<int>(t), row(q, t).data(), row(attention, t).data(), scores);
      }
    });
    linear(O, OBias, layer, attention, projected);
    add();
    norm_block(MlpNorm, layer, x, normed);
    linear(Gate, GateBias, layer, normed, gate);
    linear(Up, UpBias, layer, normed, up);
    each([&](std::size_t t) {
      const auto g = row(gate, t), u = row(up, t);
      for (std::size_t i = 0; i < inner; ++i) g[i] = round(round(exact_silu(g[i])) * u[i]);
    });
    linear(Down, DownBias, layer, gate, projected);
    add();
  }
  // Logits only where they are wanted.
  std::vector<float> last;
  for (const int p : wanted) {
    const auto from = row(x, static_cast<std::size_t>(p - position_));
    last.insert(last.end(), from.begin(), from.end());
  }
  if (!last.empty()) {
    std::vector<float> last_normed(last.size()), out(wanted.size() * logits_.size());
    norm_block(FinalNorm, 0, last, last_normed);
    linear(LmHead, LmHead, 0, last_normed, out);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto from = std::span(out).subspan(i * logits_.size(), logits_.size());
      logits.emplace_back(from.begin(), from.end());
    }
  }
  position_ += static_cast<int>(count);
  return {};
}

template <class R>
Result<std::vector<std::vector<float>>> Decoder<R>::feed(std::span<const int> tokens, std::span<const int> wanted) {
  AMK_CHECK(ready_);
  const auto count = static_cast<int>(tokens.size());
  for (const int token : tokens)
    if (token < 0 || token >= spec_.vocab) return bad_field("token", token, "0 to " + std::to_string(spec_.vocab - 1));
  if (count > max_seq_ - position_)
    return bad_field("tokens", count, "as many as the sequence has room for, " + std::to_string(max_seq_ - position_));
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i] < position_ || wanted[i] >= position_ + count || (i > 0 && wanted[i] <= wanted[i - 1]))
      return bad_field("wanted", wanted[i], "ascending positions of these tokens, from " + std::to_string(position_));
  if (!pool_) pool_.emplace(threads_);
  constexpr std::size_t kBlock = 64;  // tokens: bounds the memory
  std::vector<std::vector<float>> logits;
  for (std::size_t done = 0; done < tokens.size();) {
    const auto part = tokens.subspan(done, std::min(kBlock, tokens.size() - done));
    done += part.size();
    const auto end = std::lower_bound(wanted.begin(), wanted.end(), position_ + static_cast<int>(part.size()));
    const auto here = wanted.first(static_cast<std::size_t>(end - wanted.begin()));
    wanted = wanted.subspan(here.size());
    AMK_CHECK(feed_block(part, here, logits));
  }
  return logits;
}

template class Decoder<Fp32Rounding>;
template class Decoder<Bf16Rounding>;

}  // namespace amk
