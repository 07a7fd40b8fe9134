// Models and schedules that the cost model's tests predict.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>

#include "core/program/lower.h"
#include "core/schedule/config.h"
#include "core/target/gpu_target.h"

namespace amk::test {

inline ModelSpec llama_1b() {
  ModelSpec s;
  s.name = "llama-3.2-1b";
  s.hidden = 2048;
  s.intermediate = 8192;
  s.layers = 16;
  s.heads = 32;
  s.kv_heads = 8;
  s.head_dim = 64;
  s.vocab = 128256;
  s.max_position = 131072;
  s.tied_embeddings = true;
  return s;
}

inline ModelSpec llama_8b() {
  ModelSpec s = llama_1b();
  s.name = "llama-3.1-8b";
  s.hidden = 4096;
  s.intermediate = 14336;
  s.layers = 32;
  s.head_dim = 128;
  s.tied_embeddings = false;
  return s;
}

inline ModelSpec smollm2_135m() {
  ModelSpec smollm2 = llama_1b();
  smollm2.name = "smollm2-135m";
  smollm2.hidden = 576;
  smollm2.intermediate = 1536;
  smollm2.layers = 30;
  smollm2.heads = 9;
  smollm2.kv_heads = 3;
  smollm2.vocab = 49152;
  return smollm2;
}

inline GpuTarget gpu(const char* name) { return load_gpu_target(name, std::filesystem::path(AMK_SOURCE_DIR) / "config" / "gpus").value(); }

inline Program lowered(const ModelSpec& spec, const ScheduleConfig& config, const GpuTarget& target, int max_seq = 4096) {
  auto program = lower(spec, config, {target.sm_count, target.smem_optin_bytes, max_seq, {}}, {spec.dtype, DType::BF16, DType::BF16});
  REQUIRE_MESSAGE(program, (program ? "" : program.error().message));
  return *program;
}

}  // namespace amk::test
