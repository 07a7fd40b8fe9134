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
  const auto count = static_cast<std::int64_t>(tokens());
  const std::int64_t macs = 2LL * (position_ + count) * spec_.head_dim;
  pool_->for_ranges(count * spec_.heads, std::max<std::int64_t>(1, kMacsPerRange / macs), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> scores;
    for (std::int64_t i = begin; i < end; ++i) {
      const auto t = static_cast<std::size_t>(i / spec_.heads);
      attend_head(layer, static_cast<int>(i % spec_.heads), position_ + static_cast<int>(t), of_token(q_, t).data(), of_token(attention_, t).data(),
                  scores);
    }
  });
}

template <class R>
template <class Body>
void Decoder<R>::each_token(std::size_t count, const Body& body) {
  pool_->for_ranges(static_cast<std::int64_t>(count), 4, [&](std::int64_t begin, std::int64_t end) {
    for (auto t = static_cast<std::size_t>(begin); t < static_cast<std::size_t>(end); ++t) body(t);
  });
}

template <class R>
void Decoder<R>::norm(WeightKind kind, int layer, std::span<const float> in, std::span<float> out) {
  load_vector(kind, layer, norm_weight_);
  const std::size_t width = norm_weight_.size();
  each_token(in.size() / width, [&](std::size_t t) { rms_norm(in.subspan(t * width, width), norm_weight_, out.subspan(t * width, width)); });
}

template <class R>
void Decoder<R>::add_residual() {
  each_token(tokens(), [&](std::size_t t) {
    const auto to = of_token(hidden_, t), update = of_token(projected_, t);
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = round(to[i] + update[i]);
  });
}

// One token is a block of one. Of several, the operations on each and its operands are the same, and so the bits, but each weight is read from memory
// once and threads meet once an operator, not once an operator and token: a model of 135 million parameters is through 264 tokens in a twentieth of
// the time.
template <class R>
void Decoder<R>::forward(std::span<const int> block) {
  using enum WeightKind;
  const std::size_t count = block.size();
  const auto rows_of = [&](std::vector<float>& rows, int width) { rows.resize(count * static_cast<std::size_t>(width)); };
  for (auto* rows : {&hidden_, &normed_, &projected_}) rows_of(*rows, spec_.hidden);
  for (auto* rows : {&q_, &attention_}) rows_of(*rows, spec_.q_rows());
  for (auto* rows : {&k_, &v_}) rows_of(*rows, spec_.kv_rows());
  for (auto* rows : {&gate_, &up_}) rows_of(*rows, spec_.intermediate);
  for (auto* rows : {&cos_, &sin_}) rows_of(*rows, spec_.head_dim / 2);
  for (std::size_t t = 0; t < count; ++t) {
    row_to_f32(weights_->get(Embedding), block[t], of_token(hidden_, t));
    rope_cos_sin(spec_, position_ + static_cast<int>(t), of_token(cos_, t), of_token(sin_, t));
  }
  for (auto* rows : {&hidden_, &cos_, &sin_})
    for (float& e : *rows) e = round(e);

  for (int layer = 0; layer < spec_.layers; ++layer) {
    norm(AttnNorm, layer, hidden_, normed_);
    linear(Q, QBias, layer, normed_, q_);
    linear(K, KBias, layer, normed_, k_);
    linear(V, VBias, layer, normed_, v_);
    for (std::size_t t = 0; t < count; ++t) {
      for (auto* heads : {&q_, &k_}) {
        if (spec_.qk_norm) norm_heads(of_token(*heads, t), heads == &q_ ? QNorm : KNorm, layer);
        rotate_heads(of_token(*heads, t), of_token(cos_, t), of_token(sin_, t));
      }
      append_kv(layer, position_ + static_cast<int>(t), of_token(k_, t).data(), of_token(v_, t).data());
    }
    attend(layer);
    linear(O, OBias, layer, attention_, projected_);
    add_residual();

    norm(MlpNorm, layer, hidden_, normed_);
    linear(Gate, GateBias, layer, normed_, gate_);
    linear(Up, UpBias, layer, normed_, up_);
    each_token(count, [&](std::size_t t) {
      const auto gate = of_token(gate_, t), up = of_token(up_, t);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = round(round(exact_silu(gate[i])) * up[i]);
    });
    linear(Down, DownBias, layer, gate_, projected_);
    add_residual();
  }
  position_ += static_cast<int>(count);
}

template <class R>
void Decoder<R>::score(std::span<const float> rows, std::vector<float>& logits) {
  normed_.resize(rows.size());
  norm(WeightKind::FinalNorm, 0, rows, normed_);
  logits.resize(rows.size() / static_cast<std::size_t>(spec_.hidden) * static_cast<std::size_t>(spec_.vocab));
  linear(WeightKind::LmHead, WeightKind::LmHead, 0, normed_, logits);
}

template <class R>
Result<std::span<const float>> Decoder<R>::step(int token) {
  AMK_CHECK(ready_);
  if (token < 0 || token >= spec_.vocab) return bad_field("token", token, "0 to " + std::to_string(spec_.vocab - 1));
  if (position_ >= max_seq_)
    return fail(ErrorKind::InvalidArgument, "position " + std::to_string(position_) + " is past max_seq, " + std::to_string(max_seq_),
                {{"field", "position"}, {"value", position_}, {"accepted", max_seq_ - 1}});
  if (!pool_) pool_.emplace(threads_);
  forward({&token, 1});
  score(hidden_, logits_);
  return std::span<const float>(logits_);
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
    const int first = position_;
    forward(part);
    if (here.empty()) continue;  // logits only where they are wanted
    std::vector<float> rows, scores;
    for (const int p : here) {
      const auto row = of_token(hidden_, static_cast<std::size_t>(p - first));
      rows.insert(rows.end(), row.begin(), row.end());
    }
    score(rows, scores);
    const auto vocab = static_cast<std::ptrdiff_t>(spec_.vocab);
    for (auto at = scores.begin(); at != scores.end(); at += vocab) logits.emplace_back(at, at + vocab);
  }
  return logits;
}

template class Decoder<Fp32Rounding>;
template class Decoder<Bf16Rounding>;

}  // namespace amk
