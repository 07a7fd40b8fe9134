#include "core/program/lower_instruction.h"

#include <algorithm>
#include <array>

namespace amk {
namespace {

struct Group {
  std::string_view op;
  std::array<std::string_view, 4> members;  // of a layer, whatever is fused
};

// A group's members write the same named vectors whether they are fused or not.
constexpr std::array<Group, 6> kGroups{{{"qkv", {"attn_norm", "qkv", "rope", "kv_append"}},
                                        {"attention", {"attention", "combine"}},
                                        {"o_proj", {"o_proj", "o_proj_add"}},
                                        {"gate_up", {"mlp_norm", "gate_up", "silu_mul"}},
                                        {"down", {"down", "down_add"}},
                                        {"lm_head", {"final_norm", "lm_head", "argmax_partial"}}}};

const Group* find_group(std::string_view op) {
  const auto* at = std::find_if(kGroups.begin(), kGroups.end(), [&](const Group& g) { return g.op == op; });
  return at == kGroups.end() ? nullptr : at;
}

std::string_view member_name(const Instruction& info) {
  const std::string_view name = info.name;
  return info.layer < 0 ? name : name.substr(name.find('.') + 1);
}

template <class Visit>
void each_operand(lowering::PlannedInstruction& in, Visit visit) {
  for (BufferId* b : {&in.input, &in.second_input, &in.norm_weight, &in.weight, &in.scale, &in.bias, &in.q_norm, &in.k_norm, &in.rope, &in.residual,
                      &in.output, &in.k_output, &in.k_cache, &in.v_cache, &in.partial})
    if (*b != kNone) visit(*b);
}

// Vectors and caches that the instruction reads; of weights and tables nobody is the producer.
std::vector<BufferId> read_by(const lowering::PlannedInstruction& in) {
  std::vector<BufferId> out{in.input, in.second_input, in.residual};
  if (in.info.op == Opcode::AttentionTile || in.info.op == Opcode::AttentionO) out.insert(out.end(), {in.k_cache, in.v_cache});
  std::erase(out, kNone);
  return out;
}

bool by_head(Opcode op) { return op == Opcode::Rope || op == Opcode::KvAppend || op == Opcode::AttentionTile || op == Opcode::AttentionCombine; }

class Isolation {
 public:
  Isolation(lowering::Plan whole, const Group& group) : whole_(std::move(whole)), group_(group) {
    out_.attention = whole_.attention;
    out_.cache_in_ring = whole_.cache_in_ring;
  }

  lowering::Plan plan() {
    choose();
    chain();
    return std::move(out_);
  }

 private:
  void choose() {
    std::vector<BufferId> moved(whole_.buffers.size(), kNone);
    for (lowering::PlannedInstruction& in : whole_.instructions) {
      const auto& names = group_.members;
      if (std::find(names.begin(), names.end(), member_name(in.info)) == names.end()) continue;
      lowering::PlannedInstruction kept = std::move(in);
      each_operand(kept, [&](BufferId& b) {
        BufferId& id = moved[static_cast<std::size_t>(b)];
        if (id == kNone) {
          id = static_cast<BufferId>(out_.buffers.size());
          out_.buffers.push_back(whole_.buffers[static_cast<std::size_t>(b)]);
          out_.producer.push_back(kNone);
          out_.consumers.emplace_back();
        }
        b = id;
      });
      const auto self = static_cast<InstructionId>(out_.instructions.size());
      for (const BufferId b : {kept.output, kept.k_output, kept.partial})
        if (b != kNone) out_.producer[static_cast<std::size_t>(b)] = self;
      if (kept.info.op != Opcode::AttentionTile && kept.info.op != Opcode::AttentionO)
        for (const BufferId b : {kept.k_cache, kept.v_cache})
          if (b != kNone) out_.producer[static_cast<std::size_t>(b)] = self;
      for (const BufferId b : read_by(kept)) out_.consumers[static_cast<std::size_t>(b)].push_back(self);
      out_.instructions.push_back(std::move(kept));
    }
    for (std::size_t b = 0; b < out_.buffers.size(); ++b) {
      Buffer& buffer = out_.buffers[b];
      if (out_.producer[b] == kNone && (buffer.space == Space::Activation || buffer.space == Space::Kv)) buffer.space = Space::Input;
    }
  }

  // A layer's first instructions wait for all of the layer before, as if its vectors came from there.
  void chain() {
    std::vector<std::vector<lowering::Dependency>> needed(out_.instructions.size());
    std::vector<InstructionId> before, ends;  // of the layer before; of this layer, so far
    int layer = -2;
    for (std::size_t i = 0; i < out_.instructions.size(); ++i) {
      const lowering::PlannedInstruction& in = out_.instructions[i];
      if (in.info.layer != layer) {
        before = std::move(ends);
        ends.clear();
        layer = in.info.layer;
      }
      for (const BufferId b : read_by(in)) {
        const InstructionId from = out_.producer[static_cast<std::size_t>(b)];
        if (from == kNone) continue;
        needed[i].push_back({from, by_head(in.info.op)});
        std::erase(ends, from);
      }
      if (needed[i].empty())
        for (const InstructionId from : before) {
          needed[i].push_back({from, false});
          out_.instructions[static_cast<std::size_t>(from)].grouped = false;
        }
      ends.push_back(static_cast<InstructionId>(i));
    }
    out_.order = lowering::InstructionOrder(out_.instructions.size());
    for (lowering::PlannedInstruction& in : out_.instructions) in.signals = false;
    for (std::size_t i = 0; i < out_.instructions.size(); ++i) {
      for (lowering::Dependency& d : needed[i]) d.per_head = d.per_head && out_.instructions[static_cast<std::size_t>(d.from)].grouped;
      out_.instructions[i].waits = out_.order.add(std::move(needed[i]));
      for (const lowering::Dependency& d : out_.instructions[i].waits) out_.instructions[static_cast<std::size_t>(d.from)].signals = true;
    }
  }

  lowering::Plan whole_;
  const Group& group_;
  lowering::Plan out_;
};

}  // namespace

std::span<const std::string_view> instruction_ops() {
  static constexpr auto kNames = [] {
    std::array<std::string_view, kGroups.size()> names{};
    for (std::size_t i = 0; i < kGroups.size(); ++i) names[i] = kGroups[i].op;
    return names;
  }();
  return kNames;
}

bool is_instruction_op(std::string_view op) { return find_group(op) != nullptr; }

std::string accepted_instruction_ops() {
  std::string out;
  for (const std::string_view op : instruction_ops()) out += (out.empty() ? "" : ", ") + std::string(op);
  return out;
}

namespace lowering {

Plan isolate(Plan whole, std::string_view op) { return Isolation(std::move(whole), *find_group(op)).plan(); }

}  // namespace lowering

Result<Program> lower_instruction(const ModelSpec& spec, std::string_view op, const ScheduleConfig& config, const LoweringTarget& target,
                                  const NumericFormat& format) {
  if (!is_instruction_op(op)) return bad_field("instruction", std::string(op), accepted_instruction_ops());
  if (config.fusion.combine_o)
    return fail(ErrorKind::Rejected, "combine+o joins two instructions: neither can be isolated",
                {{"rule", "fused-across"}, {"message", "combine+o joins two instructions"}, {"witness", {{"fusion_grouping", "combine+o"}}}});
  if (config.kernel.publish == Publish::Flagged)
    return fail(ErrorKind::Rejected, "flagged data carries its producer's tag: vectors that the host gives have none",
                {{"rule", "flagged-alone"}, {"message", "flagged data carries its producer's tag"}, {"witness", {{"publish", "flagged"}}}});
  ScheduleConfig own = config;
  own.page_allocation = PageAllocation::None;  // every layer's vectors stay readable after the step
  AMK_TRY(program, lowering::lower_part(spec, own, target, format, op));
  program.schedule_id = schedule_id(config);
  return program;
}

}  // namespace amk
