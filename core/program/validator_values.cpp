#include "core/program/validator_values.h"

namespace amk::validation {

std::string name_of(Value value) {
  const std::string number = std::to_string(value.number);
  const std::string layer = "L" + number + ".";
  switch (value.holds) {
    case Holds::Weights:
      break;
    case Holds::Token:
      return "token";
    case Holds::Rope:
      return "rope";
    case Holds::Residual:
      return "x" + number;
    case Holds::AttnNormed:
      return layer + "attn_norm.out";
    case Holds::Qkv:
      return layer + "qkv.out";
    case Holds::Q:
      return layer + "q";
    case Holds::K:
      return layer + "k";
    case Holds::KeyCache:
      return "kv.k." + number;
    case Holds::ValueCache:
      return "kv.v." + number;
    case Holds::Partials:
      return layer + "partials";
    case Holds::Attention:
      return layer + "attn";
    case Holds::ODelta:
      return layer + "o_proj.out";
    case Holds::MlpNormed:
      return layer + "mlp_norm.out";
    case Holds::GateUp:
      return layer + "gate_up.out";
    case Holds::Act:
      return layer + "act";
    case Holds::DownDelta:
      return layer + "down.out";
    case Holds::FinalNormed:
      return "final_norm.out";
    case Holds::Logits:
      return "logits";
    case Holds::ArgmaxPartials:
      return "argmax_partials";
    case Holds::NextToken:
      return "next_token";
  }
  return {};
}

}  // namespace amk::validation
