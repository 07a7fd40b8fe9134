#include "tests/unit/program/check_program.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/program/packing.h"

namespace amk::test {
namespace {

using Interval = std::pair<std::int64_t, std::int64_t>;

std::string quote(const Program& p, std::size_t task) { return task_name(p, static_cast<TaskId>(task)); }

bool active(std::int32_t lo, std::int32_t hi, std::int32_t pos) { return lo <= pos && pos < hi; }

// Bytes of a region within its buffer at one launch position; empty when it is not touched.
Interval bytes_at(const Task& t, const Region& r, std::int32_t pos) {
  if (!active(t.pos_lo, t.pos_hi, pos) || !active(r.pos_lo, r.pos_hi, pos)) return {0, 0};
  return {r.begin + pos * r.pos_stride, r.end + pos * r.pos_stride};
}

// Sorts and joins touching intervals; false when two overlap.
bool join(std::vector<Interval>& v) {
  std::sort(v.begin(), v.end());
  bool disjoint = true;
  std::vector<Interval> joined;
  for (const Interval& i : v) {
    if (i.first == i.second) continue;
    if (!joined.empty() && i.first < joined.back().second) disjoint = false;
    if (!joined.empty() && i.first <= joined.back().second)
      joined.back().second = std::max(joined.back().second, i.second);
    else
      joined.push_back(i);
  }
  v = std::move(joined);
  return disjoint;
}

// The positions at which guards change, and both ends.
std::vector<std::int32_t> probe_positions(const Program& p) {
  std::set<std::int32_t> positions{0, 1, p.max_seq - 1};
  for (int s = 1; s < p.attention.splits; ++s) {
    positions.insert(s * p.attention.kv_block - 1);
    positions.insert(s * p.attention.kv_block);
  }
  std::vector<std::int32_t> list;
  for (std::int32_t pos : positions)
    if (pos >= 0 && pos < p.max_seq) list.push_back(pos);
  return list;
}

}  // namespace

void check_structure(const Program& p, const ScheduleConfig& config, std::vector<std::string>& problems) {
  const auto report = [&](std::string text) { problems.push_back(std::move(text)); };
  std::set<std::string> names;
  for (const Buffer& b : p.buffers) {
    if (!names.insert(b.name).second) report("buffer name twice: " + b.name);
    std::int64_t bytes = dtype_bytes(b.dtype);
    for (std::int64_t n : b.shape) bytes *= n;
    if (bytes != b.bytes || b.bytes <= 0) report("bytes of " + b.name);
    if (b.storage < 0 || b.storage >= static_cast<int>(p.storages.size())) {
      report("storage of " + b.name);
      continue;
    }
    const Storage& s = p.storages[b.storage];
    if (s.space != b.space) report("space of " + b.name);
    if (b.offset % 256 != 0 || b.offset < 0 || b.offset + b.bytes > s.bytes) report("place of " + b.name);
  }
  std::set<std::string> counter_names, instruction_names;
  std::vector<int> signals(p.counters.size(), 0), waited(p.counters.size(), 0);
  for (const Counter& c : p.counters)
    if (!counter_names.insert(c.name).second) report("counter name twice: " + c.name);
  for (const Instruction& i : p.instructions)
    if (!instruction_names.insert(i.name).second) report("instruction name twice: " + i.name);
  for (std::size_t id = 0; id < p.tasks.size(); ++id) {
    const Task& t = p.tasks[id];
    const Instruction& in = p.instructions.at(static_cast<std::size_t>(t.instruction));
    if (in.op != t.op || in.layer != t.layer || in.matrix != t.matrix || in.fused != t.fused) report("instruction of " + quote(p, id));
    if (t.sm < 0 || t.sm >= p.sm_count || p.queues[t.sm].at(t.queue_pos) != static_cast<TaskId>(id)) report("queue place of " + quote(p, id));
    if (t.signal != kNone) ++signals.at(static_cast<std::size_t>(t.signal));
    std::set<std::pair<CounterId, bool>> waits;  // and whether it is of the step before
    for (const Wait& w : t.waits) {
      ++waited.at(static_cast<std::size_t>(w.counter));
      // From the step before: the argmax, and flagged appends of SMs by whose LM head rows it does not know of them.
      const bool step_edge = p.step_sync == StepSync::Persistent && w.target == 0 && t.queue_pos == 0 &&
                             (w.counter == p.tasks.back().signal || config.kernel.publish == Publish::Flagged);
      if (!step_edge && w.target != p.counters[w.counter].fan_in) report("partial wait of " + quote(p, id));
      if (!waits.insert({w.counter, step_edge}).second) report("wait twice of " + quote(p, id));
    }
    for (const auto* list : {&t.reads, &t.writes}) {
      for (const Region& r : *list) {
        const Buffer& b = p.buffers.at(static_cast<std::size_t>(r.buffer));
        if (r.begin < 0 || r.end <= r.begin || r.end + (p.max_seq - 1) * r.pos_stride > b.bytes)
          report("region of " + b.name + " in " + quote(p, id));
        if (r.begin % dtype_bytes(b.dtype) != 0 || r.end % dtype_bytes(b.dtype) != 0) report("alignment of " + b.name + " in " + quote(p, id));
        if (r.pos_stride != 0 && b.space != Space::Kv) report("stride on " + b.name);
      }
    }
    const std::int64_t row_bytes = t.op == Opcode::Gemv ? std::int64_t{packed_cols(p.model, t.matrix)} : 0;
    const bool ring = config.smem_bytes_per_block > 0 && t.op == Opcode::Gemv;
    std::int64_t rows = 0;  // of K and of V, position by position
    if (t.op == Opcode::AttentionTile && config.kernel.kv_path == KvPath::Ring)
      for (int at = 0; at < p.max_seq; ++at) {
        const int split = at / p.attention.kv_block % t.splits;
        rows += split % p.attention.split_step == t.split ? 2 : 0;
      }
    const BufferId weight = t.op == Opcode::Gemv ? p.find_buffer(in.name + ".w") : kNone;
    const std::int64_t expected = ring ? (t.row_end - t.row_begin) * row_bytes * dtype_bytes(p.buffers.at(static_cast<std::size_t>(weight)).dtype)
                                  : rows == 0
                                      ? 0
                                      : rows * p.model.head_dim * dtype_bytes(p.buffers.at(static_cast<std::size_t>(p.find_buffer("kv.k.0"))).dtype);
    if (t.ring_bytes != expected) report("ring bytes of " + quote(p, id));
  }
  for (std::size_t c = 0; c < p.counters.size(); ++c) {
    if (signals[c] != p.counters[c].fan_in || signals[c] == 0) report("fan-in of " + p.counters[c].name);
    if (waited[c] == 0) report("nobody waits for " + p.counters[c].name);
    if (std::int64_t{p.counters[c].fan_in} * (p.max_steps + 1) > 2147483647) report("overflow of " + p.counters[c].name);
  }
  if (p.queues.size() != static_cast<std::size_t>(p.sm_count) || p.streams.size() != p.queues.size()) report("number of queues");
  std::size_t queued = 0;
  for (std::size_t sm = 0; sm < p.queues.size(); ++sm) {
    queued += p.queues[sm].size();
    std::vector<TaskId> stream;
    for (std::size_t i = 0; i < p.queues[sm].size(); ++i) {
      const Task& t = p.tasks.at(static_cast<std::size_t>(p.queues[sm][i]));
      if (t.ring_bytes > 0) stream.push_back(p.queues[sm][i]);
      if (i > 0 && p.tasks[p.queues[sm][i - 1]].instruction > t.instruction) report("queue not in layer order on SM " + std::to_string(sm));
    }
    if (stream != p.streams[sm]) report("stream of SM " + std::to_string(sm));
  }
  if (queued != p.tasks.size()) report("tasks queued: " + std::to_string(queued));
}

void check_coverage(const Program& p, std::vector<std::string>& problems) {
  std::map<BufferId, std::vector<Interval>> weights;
  for (const Task& t : p.tasks)
    for (const Region& r : t.reads) {
      const Buffer& b = p.buffers[r.buffer];
      if (b.space == Space::Weight && b.binding.matrix != Matrix::None) weights[r.buffer].push_back({r.begin, r.end});
    }
  for (std::size_t b = 0; b < p.buffers.size(); ++b)
    if (p.buffers[b].space == Space::Weight && p.buffers[b].binding.matrix != Matrix::None) {
      auto& list = weights[static_cast<BufferId>(b)];
      if (!join(list) || list != std::vector<Interval>{{0, p.buffers[b].bytes}})
        problems.push_back("weights not read exactly once: " + p.buffers[b].name);
    }
  for (std::int32_t pos : probe_positions(p)) {
    std::map<BufferId, std::vector<Interval>> written;
    for (const Task& t : p.tasks)
      for (const Region& r : t.writes) written[r.buffer].push_back(bytes_at(t, r, pos));
    for (std::size_t b = 0; b < p.buffers.size(); ++b) {
      const Buffer& buffer = p.buffers[b];
      auto& list = written[static_cast<BufferId>(b)];
      std::vector<Interval> expected;
      if (buffer.space == Space::Activation || buffer.space == Space::Output) {
        expected = {{0, buffer.bytes}};
        if (buffer.name.find("partials") != std::string::npos && buffer.name != "argmax_partials") {
          // Splits 0 … pos / kv_block have keys; each owns an equal part of the buffer.
          const std::int64_t active_splits = std::min<std::int64_t>(p.attention.splits, pos / p.attention.kv_block + 1);
          expected = {{0, buffer.bytes / p.attention.splits * active_splits}};
        }
      } else if (buffer.name == "token" && p.step_sync == StepSync::Persistent) {
        expected = {{0, buffer.bytes}};
      } else if (buffer.space == Space::Kv) {
        const std::int64_t row = buffer.bytes / p.model.kv_heads / p.max_seq;
        for (int h = 0; h < p.model.kv_heads; ++h)
          expected.push_back({(std::int64_t{h} * p.max_seq + pos) * row, (std::int64_t{h} * p.max_seq + pos + 1) * row});
        if (p.max_seq == 1) join(expected);
      }
      if (!join(list) || list != expected) problems.push_back("not written exactly once at position " + std::to_string(pos) + ": " + buffer.name);
    }
  }
}

// Query head by query head: its elements of q, the columns of O that meet them, and where the rows' sums go.
void check_attention_o(const Program& p, std::size_t id, const NumericFormat& format, std::vector<std::string>& problems) {
  const ModelSpec& m = p.model;
  const Task& t = p.tasks[id];
  const std::string layer = "L" + std::to_string(t.layer) + ".", index = std::to_string(t.layer), weight = layer + "attention_o.w";
  std::map<std::string, std::vector<Interval>> expected, actual;
  const auto put = [&](const std::string& buffer, std::int64_t element, DType dtype) {
    expected[buffer].push_back({element * dtype_bytes(dtype), (element + 1) * dtype_bytes(dtype)});
  };
  const std::string before = "x" + std::to_string(2 * t.layer), after = "x" + std::to_string(2 * t.layer + 1);
  for (std::int64_t row = t.row_begin; row < t.row_end; ++row) {
    for (std::int64_t head = 0; head < m.heads; ++head)
      for (std::int64_t d = 0; head / m.gqa() == t.head && d < m.head_dim; ++d) {
        put(weight, (row * m.heads + head) * m.head_dim + d, format.weights);
        if (row == t.row_begin) put(layer + "q", head * m.head_dim + d, format.activations);
      }
    put(after, t.head * std::int64_t{m.hidden} + row, DType::F32);
    if (t.head != 0) continue;
    put(before, row, DType::F32);
    if (m.o_bias) put(layer + "attention_o.bias", row, format.weights);
  }
  std::vector<std::string> order{layer + "q", "kv.k." + index, "kv.v." + index}, reads;
  order.insert(order.end(), static_cast<std::size_t>(t.row_end - t.row_begin), weight);
  if (t.head == 0 && m.o_bias) order.push_back(layer + "attention_o.bias");
  if (t.head == 0) order.push_back(before);
  for (const auto* list : {&t.reads, &t.writes})
    for (const Region& r : *list) {
      const Buffer& b = p.buffers[r.buffer];
      if (list == &t.reads) reads.push_back(b.name);
      if (b.space != Space::Kv) actual[b.name].push_back({r.begin, r.end});
    }
  for (auto* side : {&expected, &actual})
    for (auto& [name, list] : *side) join(list);
  if (expected != actual) problems.push_back("elements of " + quote(p, id));
  if (reads != order) problems.push_back("order of reads of " + quote(p, id));
}

void check_meaning(const Program& p, const NumericFormat& format, std::vector<std::string>& problems) {
  const ModelSpec& m = p.model;
  for (std::size_t id = 0; id < p.tasks.size(); ++id) {
    const Task& t = p.tasks[id];
    if (t.op == Opcode::AttentionO) check_attention_o(p, id, format, problems);
    if (t.op != Opcode::Gemv) continue;
    // Where each packed row's result belongs, from packing.h, element by element.
    std::map<std::string, std::vector<Interval>> expected, actual;
    const std::string layer = "L" + std::to_string(t.layer) + ".";
    const std::string index = std::to_string(t.layer);
    const auto put = [&](const std::string& buffer, std::int64_t element, DType dtype) {
      expected[buffer].push_back({element * dtype_bytes(dtype), (element + 1) * dtype_bytes(dtype)});
    };
    for (std::int32_t row = t.row_begin; row < t.row_end; ++row) {
      const LogicalRow logical = logical_row(m, t.matrix, row);
      const std::int32_t head = logical.row / std::max(1, m.head_dim);
      const std::int64_t cache = std::int64_t{head} * p.max_seq * m.head_dim + logical.row % std::max(1, m.head_dim);
      switch (logical.kind) {
        case WeightKind::Q:
          if (t.fused & kFusedRopeAppend)
            put(layer + "q", logical.row, format.activations);
          else
            put(layer + "qkv.out", logical.row, DType::F32);
          break;
        case WeightKind::K:
          if (t.fused & kFusedRopeAppend)
            put("kv.k." + index, cache, format.kv);
          else
            put(layer + "qkv.out", m.q_rows() + logical.row, DType::F32);
          break;
        case WeightKind::V:
          if (t.fused & kFusedRopeAppend)
            put("kv.v." + index, cache, format.kv);
          else
            put(layer + "qkv.out", m.q_rows() + m.kv_rows() + logical.row, DType::F32);
          break;
        case WeightKind::Gate:
          if (t.fused & kFusedSiluMul)
            put(layer + "act", logical.row, format.activations);
          else
            put(layer + "gate_up.out", logical.row, DType::F32);
          break;
        case WeightKind::Up:
          if (!(t.fused & kFusedSiluMul)) put(layer + "gate_up.out", m.intermediate + logical.row, DType::F32);
          break;
        case WeightKind::O:
          put(t.fused & kFusedResidualAdd ? "x" + std::to_string(2 * t.layer + 1) : layer + "o_proj.out", logical.row, DType::F32);
          break;
        case WeightKind::Down:
          put(t.fused & kFusedResidualAdd ? "x" + std::to_string(2 * t.layer + 2) : layer + "down.out", logical.row, DType::F32);
          break;
        case WeightKind::LmHead:
          put("logits", logical.row, DType::F32);
          break;
        default:
          problems.push_back("kind of row in " + quote(p, id));
      }
    }
    if (t.fused & kFusedArgmax) expected["argmax_partials"].push_back({8 * t.partial, 8 * t.partial + 8});
    for (const Region& r : t.writes) actual[p.buffers[r.buffer].name].push_back({r.begin, r.end});
    for (auto& [name, list] : expected) join(list);
    for (auto& [name, list] : actual) join(list);
    if (expected != actual) problems.push_back("rows of " + quote(p, id) + " written elsewhere");
    // Order of reads, by name: the list that lower.h documents.
    std::vector<std::string> reads, order;
    for (const Region& r : t.reads) reads.push_back(p.buffers[r.buffer].name);
    const std::string prefix = p.instructions[t.instruction].name;
    const auto has = [&](const std::string& name) { return p.find_buffer(name) != kNone; };
    const std::string residual =
        "x" + std::to_string(t.layer < 0 ? 2 * m.layers : 2 * t.layer + (t.matrix == Matrix::GateUp || t.matrix == Matrix::Down ? 1 : 0));
    const std::string norm = t.matrix == Matrix::Qkv ? layer + "attn_norm" : t.matrix == Matrix::GateUp ? layer + "mlp_norm" : "final_norm";
    if (t.fused & kFusedCombine)
      order.insert(order.end(), static_cast<std::size_t>(p.attention.splits), layer + "partials");
    else if (t.matrix == Matrix::O)
      order.push_back(layer + "attn");
    else if (t.matrix == Matrix::Down)
      order.push_back(layer + "act");
    else
      order.push_back(t.fused & kFusedNorm ? residual : norm + ".out");
    if (t.fused & kFusedNorm) order.push_back(norm + ".w");
    order.push_back(prefix + ".w");
    if (has(prefix + ".bias")) order.push_back(prefix + ".bias");
    if (t.fused & kFusedRopeAppend) {
      if (m.qk_norm) order.insert(order.end(), {layer + "q_norm.w", layer + "k_norm.w"});
      order.push_back("rope");
    }
    // A residual that attention_o wrote is a vector a kv head.
    const bool summed = t.matrix == Matrix::Down && has(layer + "attention_o.w");
    if (t.fused & kFusedResidualAdd) order.insert(order.end(), summed ? static_cast<std::size_t>(m.kv_heads) : 1, residual);
    if (reads != order) problems.push_back("order of reads of " + quote(p, id));
    if (m.qk_norm && (t.fused & kFusedRopeAppend)) {
      const std::int32_t qk = m.q_rows() + m.kv_rows();
      if ((t.row_begin < qk && t.row_begin % m.head_dim != 0) || (t.row_end < qk && t.row_end % m.head_dim != 0))
        problems.push_back("head norm over part of a head in " + quote(p, id));
    }
  }
}

void check_order(const Program& p, std::vector<std::string>& problems) {
  // before[t]: tasks that surely finish before t starts: through its queue and through full counters. Tasks are in topological order.
  const std::size_t n = p.tasks.size();
  const std::size_t words = (n + 63) / 64;
  std::vector<std::vector<std::uint64_t>> before(n, std::vector<std::uint64_t>(words, 0));
  std::vector<std::vector<std::size_t>> signallers(p.counters.size());
  for (std::size_t t = 0; t < n; ++t)
    if (p.tasks[t].signal != kNone) signallers[p.tasks[t].signal].push_back(t);
  for (std::size_t t = 0; t < n; ++t) {
    const auto follow = [&](std::size_t from) {
      for (std::size_t w = 0; w < words; ++w) before[t][w] |= before[from][w];
      before[t][from / 64] |= std::uint64_t{1} << (from % 64);
      if (from >= t) problems.push_back("task order is not topological at " + quote(p, t));
    };
    if (p.tasks[t].queue_pos > 0) follow(static_cast<std::size_t>(p.queues[p.tasks[t].sm][p.tasks[t].queue_pos - 1]));
    for (const Wait& w : p.tasks[t].waits)
      if (w.target > 0)
        for (std::size_t s : signallers[w.counter]) follow(s);
  }
  // Steps of one launch: everything of a step comes before all its argmaxes, and those before whatever an SM does first in the next.
  if (p.step_sync == StepSync::Persistent) {
    std::vector<std::size_t> last;
    for (std::size_t t = 0; t < n; ++t)
      if (p.tasks[t].op == Opcode::Argmax) last.push_back(t);
    for (std::size_t t = 0; t < n; ++t) {
      bool over = p.tasks[t].op == Opcode::Argmax;
      for (const std::size_t argmax : last) over = over || (before[argmax][t / 64] >> (t % 64) & 1) != 0;
      if (!over) problems.push_back("nothing says when " + quote(p, t) + " is over");
    }
    const CounterId over = p.tasks.back().signal;
    if (last.empty() || over == kNone || signallers[over] != last) problems.push_back("the argmaxes do not signal the end of a step");
    for (const auto& queue : p.queues)
      if (!queue.empty() && (p.tasks[queue[0]].waits.empty() || p.tasks[queue[0]].waits[0] != Wait{over, 0}))
        problems.push_back(quote(p, static_cast<std::size_t>(queue[0])) + " begins a step before the one before is over");
  }
  struct Access {
    std::int64_t begin, end;
    std::size_t task;
    BufferId buffer;
    bool write;
  };
  for (std::int32_t pos : {p.max_seq - 1, 0}) {
    std::map<StorageId, std::vector<Access>> accesses;
    for (std::size_t t = 0; t < n; ++t)
      for (const auto* list : {&p.tasks[t].reads, &p.tasks[t].writes})
        for (const Region& r : *list) {
          const Buffer& b = p.buffers[r.buffer];
          if (b.space == Space::Weight || b.space == Space::Const || b.space == Space::Input) continue;
          const Interval bytes = bytes_at(p.tasks[t], r, pos);
          if (bytes.first < bytes.second)
            accesses[b.storage].push_back({b.offset + bytes.first, b.offset + bytes.second, t, r.buffer, list == &p.tasks[t].writes});
        }
    for (auto& [storage, list] : accesses) {
      std::sort(list.begin(), list.end(), [](const Access& a, const Access& b) { return a.begin < b.begin; });
      for (std::size_t i = 0; i < list.size(); ++i)
        for (std::size_t j = i + 1; j < list.size() && list[j].begin < list[i].end; ++j) {
          const Access& a = list[i];
          const Access& b = list[j];
          if ((!a.write && !b.write) || a.task == b.task) continue;
          const bool ab = before[b.task][a.task / 64] >> (a.task % 64) & 1;
          const bool ba = before[a.task][b.task / 64] >> (b.task % 64) & 1;
          const bool right = a.buffer != b.buffer ? ab || ba : a.write && b.write ? false : a.write ? ab : ba;
          if (!right && problems.size() < 20)
            problems.push_back("unordered: " + quote(p, a.task) + " and " + quote(p, b.task) + " on " + p.buffers[a.buffer].name + ", " +
                               p.buffers[b.buffer].name);
        }
    }
  }
}

std::vector<std::string> problems_of(const Program& program, const ScheduleConfig& config, const NumericFormat& format) {
  std::vector<std::string> problems;
  check_structure(program, config, problems);
  if (!problems.empty()) return problems;
  check_coverage(program, problems);
  check_meaning(program, format, problems);
  check_order(program, problems);
  return problems;
}

}  // namespace amk::test
