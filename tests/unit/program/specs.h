// Model shapes for tests of lowering, by hand: those of tests/fixtures/hf and two of the catalogue. No weights.
#pragma once

#include <vector>

#include "core/model/model_spec.h"

namespace amk::test {

inline ModelSpec shape(const char* name, int hidden, int intermediate, int layers, int heads, int kv_heads, int head_dim, int vocab,
                       int max_position) {
  ModelSpec s;
  s.name = name;
  s.hidden = hidden;
  s.intermediate = intermediate;
  s.layers = layers;
  s.heads = heads;
  s.kv_heads = kv_heads;
  s.head_dim = head_dim;
  s.vocab = vocab;
  s.max_position = max_position;
  return s;
}

inline ModelSpec llama_1b() { return shape("llama-3.2-1b", 2048, 8192, 16, 32, 8, 64, 128256, 131072); }
inline ModelSpec llama_8b() { return shape("llama-3.1-8b", 4096, 14336, 32, 32, 8, 128, 128256, 131072); }

inline std::vector<ModelSpec> fixture_shapes() {
  std::vector<ModelSpec> all{
      shape("llama-9h3kv", 144, 384, 2, 9, 3, 16, 512, 512),       shape("llama-fp32-hd128", 64, 176, 2, 2, 1, 128, 257, 512),
      shape("llama-gqa", 96, 208, 2, 4, 2, 32, 323, 512),          shape("llama-headdim-wide", 96, 208, 2, 2, 2, 64, 323, 512),
      shape("llama-linear-rope", 96, 208, 2, 4, 2, 32, 323, 512),  shape("llama-mha-bias", 96, 208, 2, 4, 4, 32, 300, 512),
      shape("llama-sharded-fp16", 96, 208, 3, 4, 2, 32, 323, 512), shape("llama-tied-mqa-llama3rope", 192, 448, 2, 3, 1, 64, 1031, 512),
      shape("mistral-window8", 96, 208, 2, 4, 2, 32, 323, 512),    shape("qwen2-bias", 96, 300, 2, 4, 2, 24, 323, 512),
      shape("qwen3-qknorm", 96, 208, 2, 2, 1, 64, 323, 512),
  };
  all[0].tied_embeddings = true;
  all[1].dtype = DType::F32;
  all[5].qkv_bias = all[5].o_bias = all[5].mlp_bias = true;
  all[6].dtype = DType::F16;
  all[7].tied_embeddings = true;
  all[8].architecture = Architecture::Mistral;
  all[8].sliding_window = 8;
  all[9].architecture = Architecture::Qwen2;
  all[9].qkv_bias = true;
  all[10].architecture = Architecture::Qwen3;
  all[10].qk_norm = true;
  all[10].tied_embeddings = true;
  return all;
}

}  // namespace amk::test
