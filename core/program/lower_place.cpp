#include "core/program/lower_place.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "core/program/lower_reject.h"

namespace amk::lowering {
namespace {

__extension__ using Int128 = __int128;

// SM shares in whole numbers, so that no rounding decides a placement.
std::vector<std::int64_t> sm_shares(const ScheduleConfig& config, const LoweringTarget& target) {
  const auto sms = static_cast<std::size_t>(target.sm_count);
  std::vector<std::int64_t> shares(sms, 1);
  if (config.sm_assignment != SmAssignment::Measured || target.sm_weight.empty()) return shares;
  const double top = *std::max_element(target.sm_weight.begin(), target.sm_weight.end());
  constexpr double kScale = 65536;
  for (std::size_t i = 0; i < sms; ++i) shares[i] = std::max<std::int64_t>(1, std::llround(target.sm_weight[i] / top * kScale));
  return shares;
}

// Deals contiguous stretches of tiles: every SM its share rounded down, and the tiles that remain to the SMs furthest behind in bytes. Since
// what an SM got earlier counts, remainders rotate by themselves and bytes stay level across instructions of different width.
class Dealer {
 public:
  explicit Dealer(std::vector<std::int64_t> shares)
      : shares_(std::move(shares)), counts_(shares_.size()), by_deficit_(shares_.size()), in_turn_(shares_.size()), deficit_(shares_.size()) {
    for (std::int64_t s : shares_) total_share_ += s;
    for (auto& ledger : ledgers_) ledger.given.assign(shares_.size(), 0);
  }

  // The first stretch goes to `first_sm` or the next SM that gets one, and so on round. `busy`: what each SM has to do just before, by which SMs come
  // first, as far as it is given; among equals all is as without it.
  void deal(const Segment& segment, std::int64_t row_bytes, Ledger which, std::size_t first_sm, const std::vector<std::int64_t>& busy,
            std::vector<Run>& runs) {
    LedgerState& ledger = ledgers_[static_cast<std::size_t>(which)];
    const std::int64_t tiles = segment.tiles();
    const std::int64_t tile_bytes = segment.tile_rows * row_bytes;
    ledger.total += Int128{segment.end - segment.begin} * row_bytes;
    std::int64_t left = tiles;
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      counts_[i] = static_cast<std::int64_t>(Int128{tiles} * shares_[i] / total_share_);
      left -= counts_[i];
      deficit_[i] = ledger.total * shares_[i] - Int128{total_share_} * (ledger.given[i] + counts_[i] * tile_bytes);
      by_deficit_[i] = i;
    }
    const auto before = [&](std::size_t i) { return busy.empty() ? 0 : busy[i]; };
    std::sort(by_deficit_.begin(), by_deficit_.end(), [&](std::size_t a, std::size_t b) {
      if (before(a) != before(b)) return before(a) < before(b);
      return deficit_[a] != deficit_[b] ? deficit_[a] > deficit_[b] : a < b;
    });
    for (std::int64_t i = 0; i < left; ++i) ++counts_[by_deficit_[static_cast<std::size_t>(i)]];
    for (std::size_t k = 0; k < shares_.size(); ++k) in_turn_[k] = (first_sm + k) % shares_.size();
    std::stable_sort(in_turn_.begin(), in_turn_.end(), [&](std::size_t a, std::size_t b) { return before(a) < before(b); });
    std::int64_t tile = 0;
    for (const std::size_t i : in_turn_) {
      if (counts_[i] == 0) continue;
      Run run;
      run.row_begin = static_cast<std::int32_t>(segment.begin + tile * segment.tile_rows);
      tile += counts_[i];
      run.row_end = static_cast<std::int32_t>(std::min<std::int64_t>(segment.end, segment.begin + tile * segment.tile_rows));
      run.sm = static_cast<std::int32_t>(i);
      ledger.given[i] += (run.row_end - run.row_begin) * row_bytes;
      runs.push_back(run);
    }
  }

 private:
  struct LedgerState {
    Int128 total = 0;
    std::vector<std::int64_t> given;  // bytes per SM
  };
  std::vector<std::int64_t> shares_;
  std::int64_t total_share_ = 0;
  std::array<LedgerState, kLedgers> ledgers_;
  std::vector<std::int64_t> counts_;
  std::vector<std::size_t> by_deficit_, in_turn_;
  std::vector<Int128> deficit_;
};

using TilePins = std::vector<std::unordered_map<std::int32_t, std::int32_t>>;  // [instruction]: tile -> SM

// A part of a step may have one.
std::string some_names(const Plan& plan) {
  constexpr std::size_t kShown = 6;
  std::string out;
  for (std::size_t i = 0; i < std::min(kShown, plan.instructions.size()); ++i) out += (i == 0 ? "" : ", ") + plan.instructions[i].info.name;
  return plan.instructions.size() > kShown ? out + ", …" : out;
}

Result<TilePins> read_map(const ScheduleConfig& config, const LoweringTarget& target, const Plan& plan) {
  TilePins pins(plan.instructions.size());
  if (config.sm_assignment != SmAssignment::Explicit) return pins;
  std::unordered_map<std::string_view, std::size_t> by_name;
  for (std::size_t i = 0; i < plan.instructions.size(); ++i) by_name[plan.instructions[i].info.name] = i;
  for (const auto& [name, sm] : config.explicit_sm) {
    const std::size_t dot = name.rfind('.');
    const auto at = dot == std::string::npos ? by_name.end() : by_name.find(std::string_view(name).substr(0, dot));
    if (at == by_name.end())
      return reject("unknown-tile",
                    "sm_assignment names " + name + ", but this schedule has no such instruction; its instructions are " + some_names(plan),
                    {{"tile", name}});
    const std::int32_t tiles = plan.instructions[at->second].info.tiles;
    const std::string digits = name.substr(dot + 1);
    std::int64_t tile = digits.empty() || digits.size() > 9 ? tiles : 0;
    for (char c : digits) tile = c >= '0' && c <= '9' ? std::min<std::int64_t>(tile * 10 + (c - '0'), tiles) : tiles;
    if (tile >= tiles)
      return reject("unknown-tile",
                    "sm_assignment names " + name + ", but " + std::string(at->first) + " has tiles 0 to " + std::to_string(tiles - 1),
                    {{"tile", name}});
    if (sm < 0 || sm >= target.sm_count)
      return reject("sm-out-of-range",
                    "sm_assignment puts " + name + " on SM " + std::to_string(sm) + "; accepted: 0 to " + std::to_string(target.sm_count - 1),
                    {{"tile", name}, {"sm", sm}});
    pins[at->second][static_cast<std::int32_t>(tile)] = sm;
  }
  return pins;
}

// Tile t goes to SM t mod SMs unless the map says otherwise.
void in_turn(const PlannedInstruction& in, const std::unordered_map<std::int32_t, std::int32_t>& pins, int sm_count, std::vector<Run>& runs) {
  std::int32_t tile = 0;
  for (const Segment& s : in.segments) {
    for (std::int32_t row = s.begin; row < s.end; row += s.tile_rows, ++tile) {
      Run run{row, std::min(s.end, row + s.tile_rows), tile % sm_count, 0};
      if (!pins.empty())
        if (const auto pin = pins.find(tile); pin != pins.end()) run.sm = pin->second;
      if (!runs.empty() && runs.back().sm == run.sm && runs.back().row_end == row)
        runs.back().row_end = run.row_end;
      else
        runs.push_back(run);
    }
  }
}

// Whose tiles are of one sequence each: always tasks of their own.
bool one_sequence(Opcode op) { return op == Opcode::AttentionTile || op == Opcode::Argmax; }

// What each SM has to do in an instruction, its rows; and what has nothing to do counts as most: it would look for its next task's input from long
// before there is any, which makes it slower to write (docs/lab/megakernel.md, 20).
std::vector<std::int64_t> rows_by_sm(const std::vector<Run>& runs, int sm_count) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(sm_count), 0);
  for (const Run& run : runs) rows[static_cast<std::size_t>(run.sm)] += run.row_end - run.row_begin;
  const std::int64_t most = *std::max_element(rows.begin(), rows.end());
  for (std::int64_t& r : rows)
    if (r == 0) r = most + 1;
  return rows;
}

// One task covers rows of one kv head where counters are per head, or the task's input is a head's.
void cut(const ModelSpec& spec, const PlannedInstruction& in, std::vector<Run>& runs) {
  const bool single = one_sequence(in.info.op);
  if (!single && !in.grouped && in.info.op != Opcode::AttentionO) return;
  std::vector<Run> pieces;
  pieces.reserve(runs.size());
  for (const Run& run : runs) {
    for (std::int32_t row = run.row_begin; row < run.row_end;) {
      const std::int32_t end = single ? row + 1 : std::min(run.row_end, head_rows_end(spec, in.info, row));
      pieces.push_back({row, end, run.sm, in.grouped ? head_of_row(spec, in.info, row) : 0});
      row = end;
    }
  }
  runs = std::move(pieces);
}

}  // namespace

Result<std::vector<std::vector<Run>>> place(const ModelSpec& spec, const ScheduleConfig& config, const LoweringTarget& target, const Plan& plan) {
  AMK_TRY(pins, read_map(config, target, plan));
  const bool level = config.sm_assignment == SmAssignment::LoadBalance || config.sm_assignment == SmAssignment::Measured;
  // Before any work: an upper bound of what the loops below make, the cuts at heads included.
  std::int64_t bound = 0;
  for (const PlannedInstruction& in : plan.instructions) {
    const std::int64_t tiles = in.info.tiles;
    bound += (level && !one_sequence(in.info.op)
                  ? std::min<std::int64_t>(tiles, std::int64_t{target.sm_count} * static_cast<std::int64_t>(in.segments.size()))
                  : tiles) +
             (in.grouped ? 3 * spec.kv_heads : 0);
  }
  if (bound > kMaxTasks)
    return reject(
        "too-many-tasks",
        "the program would have up to " + std::to_string(bound) + " tasks; accepted: " + std::to_string(kMaxTasks) + "; raise tiling.gemv.N_tile",
        {{"tasks", bound}});

  Dealer dealer(sm_shares(config, target));
  std::vector<std::vector<Run>> all(plan.instructions.size());
  for (std::size_t i = 0; i < plan.instructions.size(); ++i) {
    const PlannedInstruction& in = plan.instructions[i];
    // In a short context only the first split of each head has work: it moves on with every layer, so that it is not always the same SMs.
    const std::size_t first_sm =
        in.info.op == Opcode::AttentionTile ? static_cast<std::size_t>(in.info.layer) * static_cast<std::size_t>(spec.kv_heads * target.batch) : 0;
    // Attention loads its first keys and values while its SM publishes the products before, which that delays by as long as the loads take: it goes
    // to SMs that are through with those early.
    std::vector<std::int64_t> busy;
    if (in.info.op == Opcode::AttentionTile && i > 0 && plan.instructions[i - 1].info.op == Opcode::Gemv)
      busy = rows_by_sm(all[i - 1], target.sm_count);
    if (level)
      for (const Segment& segment : in.segments) dealer.deal(segment, in.row_bytes, in.ledger, first_sm, busy, all[i]);
    else
      in_turn(in, pins[i], target.sm_count, all[i]);
    cut(spec, in, all[i]);
  }
  return all;
}

}  // namespace amk::lowering
