// Names of the enumerations in a Program's JSON form, both ways. Internal to core/program.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "core/program/program.h"

namespace amk::program_json {

template <class E, std::size_t N>
using Names = std::array<std::pair<E, std::string_view>, N>;

inline constexpr Names<Opcode, 12> kOpcodes{{{Opcode::Embed, "embed"},
                                             {Opcode::RmsNorm, "rms_norm"},
                                             {Opcode::Gemv, "gemv"},
                                             {Opcode::Rope, "rope"},
                                             {Opcode::KvAppend, "kv_append"},
                                             {Opcode::AttentionTile, "attention_tile"},
                                             {Opcode::AttentionCombine, "attention_combine"},
                                             {Opcode::SiluMul, "silu_mul"},
                                             {Opcode::Add, "add"},
                                             {Opcode::ArgmaxPartial, "argmax_partial"},
                                             {Opcode::Argmax, "argmax"},
                                             {Opcode::AttentionO, "attention_o"}}};
inline constexpr Names<Matrix, 6> kMatrices{{{Matrix::None, "none"},
                                             {Matrix::Qkv, "qkv"},
                                             {Matrix::O, "o"},
                                             {Matrix::GateUp, "gate_up"},
                                             {Matrix::Down, "down"},
                                             {Matrix::LmHead, "lm_head"}}};
inline constexpr Names<Space, 6> kSpaces{{{Space::Weight, "weight"},
                                          {Space::Activation, "activation"},
                                          {Space::Kv, "kv"},
                                          {Space::Input, "input"},
                                          {Space::Output, "output"},
                                          {Space::Const, "const"}}};
inline constexpr Names<FusedFlag, 6> kFused{{{kFusedNorm, "norm"},
                                             {kFusedRopeAppend, "rope_append"},
                                             {kFusedSiluMul, "silu_mul"},
                                             {kFusedResidualAdd, "residual_add"},
                                             {kFusedArgmax, "argmax"},
                                             {kFusedCombine, "combine"}}};
inline constexpr Names<StepSync, 2> kStepSyncs{{{StepSync::Launch, "launch"}, {StepSync::Persistent, "persistent"}}};
inline constexpr Names<DType, 5> kDTypes{
    {{DType::F32, "fp32"}, {DType::F16, "fp16"}, {DType::BF16, "bf16"}, {DType::I8, "int8"}, {DType::I32, "int32"}}};
inline constexpr Names<WeightFormat, 1> kWeightFormats{{{WeightFormat::Int8, "int8"}}};  // absent: as stored
inline constexpr Names<Architecture, 4> kArchitectures{
    {{Architecture::Llama, "llama"}, {Architecture::Mistral, "mistral"}, {Architecture::Qwen2, "qwen2"}, {Architecture::Qwen3, "qwen3"}}};
inline constexpr Names<RopeScaling, 3> kRopeScalings{
    {{RopeScaling::None, "default"}, {RopeScaling::Linear, "linear"}, {RopeScaling::Llama3, "llama3"}}};
// Vectors and tables that a weight buffer can hold; matrices are named by Matrix.
inline constexpr Names<WeightKind, 6> kVectors{{{WeightKind::Embedding, "embedding"},
                                                {WeightKind::AttnNorm, "attn_norm"},
                                                {WeightKind::QNorm, "q_norm"},
                                                {WeightKind::KNorm, "k_norm"},
                                                {WeightKind::MlpNorm, "mlp_norm"},
                                                {WeightKind::FinalNorm, "final_norm"}}};

template <class E, std::size_t N>
constexpr std::string_view name_of(const Names<E, N>& names, E value) {
  for (const auto& [v, name] : names)
    if (v == value) return name;
  return {};
}

template <class E, std::size_t N>
constexpr std::optional<E> value_of(const Names<E, N>& names, std::string_view name) {
  for (const auto& [v, n] : names)
    if (n == name) return v;
  return std::nullopt;
}

}  // namespace amk::program_json
