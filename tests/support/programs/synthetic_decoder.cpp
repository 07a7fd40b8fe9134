#include <algorithm>

#include "tests/support/programs/program_builder.h"

namespace amk::testing {

namespace {

class Decoder {
 public:
  explicit Decoder(const SyntheticShape& shape) : s_(shape), b_(shape.sms, shape.max_seq), dim_(shape.rows / shape.kv_heads) {}

  Program build() {
    const bool persistent = s_.step_sync == StepSync::Persistent;
    b_.program.step_sync = s_.step_sync;
    if (s_.shared_pages)
      for (int i = 0; i < 4; ++i) pages_.push_back(b_.storage("page" + std::to_string(i), s_.rows * 4 * std::max(1, i == 3 ? s_.splits : 1)));
    const BufferId token = b_.buffer("token", Space::Input, 1);
    const BufferId next = persistent ? token : b_.buffer("next_token", Space::Output, 1);
    const BufferId table = b_.buffer("embedding", Space::Weight, s_.rows * 8);
    const BufferId logits = b_.buffer("logits", Space::Output, s_.rows);
    const BufferId maxima = b_.buffer("maxima", Space::Activation, s_.sms);
    const CounterId done = b_.counter("argmax");
    BufferId x = activation("x0", 0, s_.rows);
    CounterId ready = b_.counter("embed");
    b_.task(0, {{b_.all(token), b_.all(table)}, {b_.all(x)}, {}, ready, Opcode::Embed, b_.instruction("embed")});
    if (persistent) b_.program.tasks.back().waits.push_back({done, 0});
    for (int layer = 0; layer < s_.layers; ++layer) x = block(layer, x, ready);
    // Every SM computes a share of the logits and its maximum.
    const CounterId scored = b_.counter("logits");
    const InstructionId head = b_.instruction("lm_head");
    const BufferId w = b_.weight("lm_head.w", Matrix::LmHead, s_.rows, 8);
    int partial = 0;
    for (const Share& share : shares(next_first_++))
      b_.task(share.sm, {{b_.all(x), weights(w, share)},
                         {b_.part(logits, share.first, share.count), b_.part(maxima, partial++, 1)},
                         {ready},
                         scored,
                         Opcode::Gemv,
                         head,
                         kFusedNorm | kFusedArgmax,
                         s_.ring});
    b_.task(s_.sms - 1,
            {{b_.part(maxima, 0, partial)}, {b_.all(next)}, {scored}, persistent ? done : kNone, Opcode::Argmax, b_.instruction("argmax")});
    return b_.finish();
  }

 private:
  struct Share {
    int sm = 0;
    std::int64_t first = 0;
    std::int64_t count = 0;
  };

  // Rows in units of 4 over the SMs; the odd ones start at another SM each time, as lowering does.
  std::vector<Share> shares(int first_sm) const {
    const std::int64_t units = s_.rows / 4;
    std::vector<Share> out;
    std::int64_t at = 0;
    for (int i = 0; i < s_.sms && at < units; ++i) {
      const std::int64_t count = units / s_.sms + (i < units % s_.sms ? 1 : 0);
      if (count == 0) continue;
      out.push_back({(i + first_sm) % s_.sms, at * 4, count * 4});
      at += count;
    }
    return out;
  }

  BufferId activation(std::string name, int page, std::int64_t elements) {
    return s_.shared_pages ? b_.buffer(std::move(name), Space::Activation, elements, pages_[static_cast<std::size_t>(page)])
                           : b_.buffer(std::move(name), Space::Activation, elements);
  }

  Region weights(BufferId w, const Share& share) const { return b_.part(w, share.first * 8, share.count * 8); }

  // qkv + append, attention in splits, combine, o + residual, mlp + residual. Pages: 0 and 1 residual in turn, 2 q and act, 3 partials and attn.
  BufferId block(int layer, BufferId x, CounterId& ready) {
    const std::string p = "L" + std::to_string(layer) + ".";
    const BufferId q = activation(p + "q", 2, s_.rows);
    const BufferId k = b_.kv("kv.k." + std::to_string(layer), s_.kv_heads, dim_);
    const BufferId v = b_.kv("kv.v." + std::to_string(layer), s_.kv_heads, dim_);
    const CounterId c_qkv = b_.counter(p + "qkv");
    const InstructionId i_qkv = b_.instruction(p + "qkv");
    const BufferId w_qkv = b_.weight(p + "qkv.w", Matrix::Qkv, s_.rows, 8);
    for (const Share& share : shares(next_first_++)) {
      ProgramBuilder::Parts parts{{b_.all(x), weights(w_qkv, share)},
                                  {b_.part(q, share.first, share.count)},
                                  {ready},
                                  c_qkv,
                                  Opcode::Gemv,
                                  i_qkv,
                                  kFusedNorm | kFusedRopeAppend,
                                  s_.ring};
      for (const BufferId cache : {k, v})
        for (std::int64_t at = share.first; at < share.first + share.count;) {
          const std::int64_t head = at / dim_;
          const std::int64_t count = std::min(share.first + share.count, (head + 1) * dim_) - at;
          parts.writes.push_back(b_.row(cache, head, at % dim_, count));
          at += count;
        }
      b_.task(share.sm, std::move(parts));
    }
    const BufferId partials = activation(p + "partials", 3, s_.rows * s_.splits);
    const CounterId c_attn = b_.counter(p + "attn");
    const InstructionId i_attn = b_.instruction(p + "attn");
    int sm = next_first_++;
    for (int h = 0; h < s_.kv_heads; ++h)
      for (int split = 0; split < s_.splits; ++split) {
        ProgramBuilder::Parts parts{{b_.part(q, h * dim_, dim_), b_.head(k, h), b_.head(v, h)},
                                    {b_.part(partials, split * s_.rows + h * dim_, dim_)},
                                    {c_qkv},
                                    c_attn,
                                    Opcode::AttentionTile,
                                    i_attn};
        parts.pos_lo = 4 * split;
        b_.task(sm++ % s_.sms, std::move(parts));
        b_.program.tasks.back().head = h;
        b_.program.tasks.back().split = split;
        b_.program.tasks.back().splits = s_.splits;
      }
    const BufferId attn = activation(p + "attn_out", 2, s_.rows);
    const CounterId c_comb = b_.counter(p + "combine");
    const InstructionId i_comb = b_.instruction(p + "combine");
    for (int h = 0; h < s_.kv_heads; ++h) {
      ProgramBuilder::Parts parts{{}, {b_.part(attn, h * dim_, dim_)}, {c_attn}, c_comb, Opcode::AttentionCombine, i_comb};
      for (int split = 0; split < s_.splits; ++split) parts.reads.push_back(b_.part(partials, split * s_.rows + h * dim_, dim_, 4 * split));
      b_.task(sm++ % s_.sms, std::move(parts));
    }
    const BufferId x1 = activation(p + "x1", 1, s_.rows);
    ready = gemv(p + "o", Matrix::O, attn, x, x1, c_comb);
    const BufferId act = activation(p + "act", 2, s_.rows);
    ready = gemv(p + "gate_up", Matrix::GateUp, x1, kNone, act, ready);
    const BufferId x2 = activation(p + "x2", 0, s_.rows);
    ready = gemv(p + "down", Matrix::Down, act, x1, x2, ready);
    return x2;
  }

  CounterId gemv(const std::string& name, Matrix matrix, BufferId in, BufferId residual, BufferId out, CounterId ready) {
    const CounterId c = b_.counter(name);
    const InstructionId i = b_.instruction(name);
    const BufferId w = b_.weight(name + ".w", matrix, s_.rows, 8);
    for (const Share& share : shares(next_first_++)) {
      ProgramBuilder::Parts parts{{b_.all(in), weights(w, share)},
                                  {b_.part(out, share.first, share.count)},
                                  {ready},
                                  c,
                                  Opcode::Gemv,
                                  i,
                                  residual == kNone ? 0u : static_cast<unsigned>(kFusedResidualAdd),
                                  s_.ring};
      if (residual != kNone) parts.reads.push_back(b_.part(residual, share.first, share.count));
      b_.task(share.sm, std::move(parts));
      b_.program.tasks.back().matrix = matrix;
    }
    return c;
  }

  SyntheticShape s_;
  ProgramBuilder b_;
  std::int64_t dim_;
  std::vector<StorageId> pages_;
  int next_first_ = 0;
};

}  // namespace

Program synthetic_decoder(const SyntheticShape& shape) { return Decoder(shape).build(); }

}  // namespace amk::testing
