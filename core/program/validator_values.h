// What a decode step computes on its way, by name: the value that a buffer holds. Lowering names buffers so (lower_plan.cpp, docs/program.md), the
// host finds inputs and outputs by these names, and since names are unique, each value has one buffer. Internal to core/program.
#pragma once

#include <cstdint>
#include <string>

namespace amk::validation {

enum class Holds : std::uint8_t {
  Weights,  // not computed: bound by binding
  Token,
  Rope,
  Residual,  // number 0: the embedding; 2·layer + 1: behind attention; 2·layer + 2: behind the MLP
  AttnNormed,
  Qkv,
  Q,
  K,
  KeyCache,
  ValueCache,
  Partials,
  Attention,
  ODelta,  // the O projection before it is added
  MlpNormed,
  GateUp,
  Act,
  DownDelta,
  FinalNormed,
  Logits,
  ArgmaxPartials,
  NextToken,
};

struct Value {
  Holds holds = Holds::Weights;
  std::int32_t number = 0;  // of the layer, or of the residual; 0 for what there is one of
  bool operator==(const Value&) const = default;
};

std::string name_of(Value value);

}  // namespace amk::validation
