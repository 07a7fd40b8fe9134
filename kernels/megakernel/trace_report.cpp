#include "kernels/megakernel/trace_report.h"

#include <algorithm>
#include <map>

#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/base/stats.h"

namespace amk {
namespace {

// Order of the device's marks: kernels/megakernel/device/trace.cuh.
enum Mark : std::size_t { kStart, kReady, kStaged, kFirstData, kComputed, kReduced, kPublished, kStarved };

double us(std::int64_t ns) { return static_cast<double>(ns) / 1000.0; }

std::string kind_of(const Program& program, TaskId id) {
  const Task& task = program.tasks[static_cast<std::size_t>(id)];
  return std::string(task.op == Opcode::Gemv ? to_string(task.matrix) : to_string(task.op));
}

struct Sums {
  std::int64_t tasks = 0, wait_dependency = 0, wait_weights = 0, compute = 0, publish = 0;
  void add(const TaskTrace& t) {
    ++tasks;
    wait_dependency += t.wait_dependency;
    wait_weights += t.wait_weights;
    compute += t.compute;
    publish += t.publish;
  }
};

Json to_json(const Sums& s, double divisor) {
  const auto mean = [divisor](std::int64_t ns) { return us(ns) / divisor; };
  return {{"wait_dependency", mean(s.wait_dependency)},
          {"wait_weights", mean(s.wait_weights)},
          {"compute", mean(s.compute)},
          {"publish", mean(s.publish)}};
}

// From the step's last task back: whoever a task waited for longest, else its predecessor in the SM's queue.
std::vector<const TaskTrace*> longest_chain(const Program& program, const TokenTrace& trace) {
  std::vector<const TaskTrace*> by_id(program.tasks.size(), nullptr);
  for (const TaskTrace& t : trace.tasks) by_id[static_cast<std::size_t>(t.task)] = &t;
  std::vector<std::vector<TaskId>> signallers(program.counters.size());
  for (std::size_t i = 0; i < program.tasks.size(); ++i)
    if (const CounterId c = program.tasks[i].signal; c != kNone) signallers[static_cast<std::size_t>(c)].push_back(static_cast<TaskId>(i));
  const auto finished = [](const TaskTrace& t) { return std::max(t.published, t.end); };
  const TaskTrace* at = nullptr;
  for (const TaskTrace& t : trace.tasks)
    if (at == nullptr || finished(t) > finished(*at)) at = &t;
  std::vector<const TaskTrace*> chain;
  while (at != nullptr && chain.size() <= program.tasks.size()) {
    chain.push_back(at);
    const Task& task = program.tasks[static_cast<std::size_t>(at->task)];
    const TaskTrace* before = nullptr;
    const auto& queue = program.queues[static_cast<std::size_t>(task.sm)];
    if (task.queue_pos > 0) before = by_id[static_cast<std::size_t>(queue[static_cast<std::size_t>(task.queue_pos) - 1])];
    std::int64_t begun = before != nullptr ? before->end : 0;
    for (const Wait& wait : task.waits) {
      for (const TaskId id : signallers[static_cast<std::size_t>(wait.counter)]) {
        const TaskTrace* other = by_id[static_cast<std::size_t>(id)];
        // A signal seen before the wait ended; later ones were not needed (a wait for part of a counter).
        if (other != nullptr && other->published > begun && other->published <= at->start + at->wait_dependency) {
          begun = other->published;
          before = other;
        }
      }
    }
    at = before;
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

std::string text_of(const Json& s) {
  std::string out;
  const auto us = [](const Json& value) { return with_decimals(value.get<double>(), 1); };
  const auto column = [&out](std::size_t width, const std::string& text) {
    out.append(width > text.size() ? width - text.size() : 0, ' ');
    out += text;
  };
  const auto kind_column = [&out](const std::string& text) {
    constexpr std::size_t kWidth = 18;
    out += text;
    out.append(kWidth > text.size() ? kWidth - text.size() : 0, ' ');
  };
  constexpr const char* kParts[] = {"wait_dependency", "wait_weights", "compute", "publish"};
  const Json& mean = s["per_sm_us"];
  out += "one token: " + us(s["span_us"]) + " us; an SM's mean: " + us(mean["wait_dependency"]) + " waiting for dependencies, " +
         us(mean["wait_weights"]) + " for weights, " + us(mean["compute"]) + " computing, " + us(mean["idle"]) + " idle; publishing beside it " +
         us(mean["publish"]) + "\n";
  kind_column("kind");
  column(8, "tasks");
  for (const char* title : {"dependency", "weights", "compute", "publish"}) column(13, title);
  out += "   us a token, mean over SMs\n";
  for (const Json& k : s["by_kind"]) {
    kind_column(k["kind"].get<std::string>());
    column(8, std::to_string(k["tasks"].get<std::int64_t>()));
    for (const char* part : kParts) column(13, with_decimals(k[part].get<double>(), 2));
    out += "\n";
  }
  out += "slowest SMs (busy us):";
  for (const Json& sm : s["slowest_sms"]) out += " " + std::to_string(sm["sm"].get<int>()) + " (" + us(sm["busy_us"]) + ")";
  const Json& chain = s["longest_chain"];
  out += "\nlongest chain: " + std::to_string(chain["tasks"].get<int>()) + " tasks;";
  for (const auto& [kind, value] : chain["by_kind"].items()) out += " " + kind + " " + us(value) + " us";
  out += "\n";
  return out;
}

}  // namespace

Result<TokenTrace> read_trace(const Program& program, const DevicePlan& plan, const std::vector<std::uint64_t>& marks) {
  std::size_t longest = 0;
  for (const auto& q : plan.queues) longest = std::max<std::size_t>(longest, q.task_count);
  if (marks.size() != plan.queues.size() * longest * amk_vm::kTraceMarks)
    return bad_field("marks", marks.size(), std::to_string(plan.queues.size() * longest * amk_vm::kTraceMarks) + " timestamps of this plan");
  TokenTrace out;
  std::uint64_t zero = ~std::uint64_t{0};
  for (std::size_t i = 0; i < marks.size(); ++i)
    if (i % amk_vm::kTraceMarks != kStarved && marks[i] != 0) zero = std::min(zero, marks[i]);
  for (std::size_t sm = 0; sm < plan.queues.size(); ++sm) {
    for (std::size_t i = 0; i < plan.queues[sm].task_count; ++i) {
      const std::uint64_t* m = &marks[(sm * longest + i) * amk_vm::kTraceMarks];
      TaskTrace t;
      t.task = plan.task_ids[sm][i];
      t.sm = static_cast<int>(sm);
      if (m[kStart] == 0 || m[kPublished] == 0)
        return bad_field("marks", task_name(program, t.task), "a begin and an end of every task: the step did not finish");
      const auto at = [&](Mark k) { return static_cast<std::int64_t>(m[k] - zero); };
      t.start = at(kStart);
      t.published = at(kPublished);
      const std::int64_t ready = m[kReady] != 0 ? at(kReady) : t.start;
      t.wait_dependency = ready - t.start;
      if (m[kComputed] != 0) {
        t.end = at(kComputed);
        const std::int64_t first = m[kFirstData] != 0 ? at(kFirstData) : ready, staged = m[kStaged] != 0 ? at(kStaged) : first;
        t.wait_weights = std::min<std::int64_t>(first - staged + static_cast<std::int64_t>(m[kStarved]), t.end - ready);
        t.compute = t.end - ready - t.wait_weights;
        t.publish = t.published - (m[kReduced] != 0 ? at(kReduced) : t.end);
      } else {
        t.end = t.published;
        t.compute = t.end - ready;
      }
      out.span_ns = std::max({out.span_ns, t.end, t.published});
      out.tasks.push_back(t);
    }
  }
  return out;
}

Json chrome_trace(const Program& program, const TokenTrace& trace) {
  Json events = Json::array();
  for (const auto& [pid, name] : {std::pair{1, "consumer warps"}, std::pair{2, "publishing warp"}})
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", pid}, {"tid", 0}, {"args", {{"name", name}}}});
  for (const TaskTrace& t : trace.tasks) {
    const std::string name = task_name(program, t.task);
    const auto add = [&](int pid, const char* category, std::int64_t from, std::int64_t ns) {
      if (ns > 0) events.push_back({{"ph", "X"}, {"name", name}, {"cat", category}, {"pid", pid}, {"tid", t.sm}, {"ts", us(from)}, {"dur", us(ns)}});
    };
    add(1, "wait-dependency", t.start, t.wait_dependency);
    // Waits for weights are scattered over the task; drawn as one piece before its computing.
    add(1, "wait-weights", t.start + t.wait_dependency, t.wait_weights);
    add(1, "compute", t.start + t.wait_dependency + t.wait_weights, t.compute);
    add(2, "publish", t.published - t.publish, t.publish);
  }
  return {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
}

Json summarize_trace(const Program& program, const TokenTrace& trace) {
  std::map<std::string, Sums> kinds;
  std::map<int, std::int64_t> busy;
  Sums all;
  for (const TaskTrace& t : trace.tasks) {
    kinds[kind_of(program, t.task)].add(t);
    all.add(t);
    busy[t.sm] += t.wait_weights + t.compute;
  }
  const double sms = std::max<double>(1, static_cast<double>(program.queues.size()));
  Json out = {{"span_us", us(trace.span_ns)}, {"per_sm_us", to_json(all, sms)}, {"by_kind", Json::array()}, {"slowest_sms", Json::array()}};
  out["per_sm_us"]["idle"] = us(trace.span_ns) - us(all.wait_dependency + all.wait_weights + all.compute) / sms;
  for (const auto& [kind, sums] : kinds) {
    Json row = to_json(sums, sms);
    row["kind"] = kind;
    row["tasks"] = sums.tasks;
    out["by_kind"].push_back(std::move(row));
  }
  std::vector<std::pair<std::int64_t, int>> order;
  for (const auto& [sm, ns] : busy) order.emplace_back(ns, sm);
  std::sort(order.rbegin(), order.rend());
  for (std::size_t i = 0; i < std::min<std::size_t>(5, order.size()); ++i)
    out["slowest_sms"].push_back({{"sm", order[i].second}, {"busy_us", us(order[i].first)}});

  const auto chain = longest_chain(program, trace);
  std::map<std::string, double> along;
  Json last = Json::array();
  std::int64_t before = 0;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const std::int64_t end = std::max(chain[i]->published, chain[i]->end);
    along[kind_of(program, chain[i]->task)] += us(end - before);
    if (i + 12 >= chain.size()) last.push_back({{"task", task_name(program, chain[i]->task)}, {"us", us(end - before)}});
    before = end;
  }
  out["longest_chain"] = {{"tasks", chain.size()}, {"us", us(before)}, {"by_kind", along}, {"last", std::move(last)}};
  out["text"] = text_of(out);
  return out;
}

}  // namespace amk
