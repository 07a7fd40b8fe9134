#include "core/reference/reference_vm_queues.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace amk::vm {
namespace {

tl::unexpected<Error> malformed(const std::string& what) {
  return fail(ErrorKind::InvalidArgument, "the program cannot be executed: " + what, {{"rule", "malformed"}});
}

}  // namespace

Status check_queues(const Program& program) {
  const auto tasks = static_cast<TaskId>(program.tasks.size());
  const auto counters = static_cast<CounterId>(program.counters.size());
  if (program.sm_count < 1 || program.queues.size() != static_cast<std::size_t>(program.sm_count) || program.streams.size() != program.queues.size())
    return malformed("it has not one queue and one stream for each of its SMs");
  std::vector<char> queued(program.tasks.size(), 0);
  for (const auto& queue : program.queues)
    for (TaskId id : queue) {
      if (id < 0 || id >= tasks || queued[id]) return malformed("task " + std::to_string(id) + " is queued twice or does not exist");
      queued[id] = 1;
    }
  if (std::find(queued.begin(), queued.end(), 0) != queued.end()) return malformed("a task is in no queue");
  std::vector<char> streamed(program.tasks.size(), 0);
  for (const auto& stream : program.streams)
    for (TaskId id : stream) {
      if (id < 0 || id >= tasks || streamed[id]) return malformed("task " + std::to_string(id) + " is streamed twice or does not exist");
      streamed[id] = 1;
    }
  for (const Task& task : program.tasks) {
    if (task.signal != kNone && (task.signal < 0 || task.signal >= counters)) return malformed("a task signals no counter");
    for (const Wait& wait : task.waits)
      if (wait.counter < 0 || wait.counter >= counters) return malformed("a task waits for no counter");
    if (task.ring_bytes > 0 && !streamed[&task - program.tasks.data()]) return malformed("a task takes ring bytes that no stream loads");
  }
  return {};
}

Queues::Queues(const Program& program)
    : program_(program),
      counters_(program.counters.size(), 0),
      heads_(program.queues.size(), 0),
      steps_(program.queues.size(), 0),
      finished_(program.tasks.size(), 0),
      waiting_(program.counters.size()),
      fronts_(program.queues.size()) {}

Queues::Unmet Queues::first_unmet(const Task& task, std::int64_t epoch) const {
  for (const Wait& wait : task.waits) {
    const std::int64_t needed = epoch * program_.counters[wait.counter].fan_in + wait.target;
    if (counters_[wait.counter] < needed) return {wait.counter, needed};
  }
  return {};
}

// Can the producer bring every chunk of `task`, when the tasks finished so far are all that freed slots? Slots are reused in stream order, so
// chunk i needs the one `slots` before it consumed; a task's loads start once at most `depth` earlier ring tasks are unfinished. While
// `task` runs it consumes its own chunks, in order.
bool Queues::stream_reaches(std::int32_t sm, TaskId task) {
  const Ring& ring = program_.ring;
  if (program_.tasks[task].ring_bytes == 0) return true;
  if (ring.chunk_bytes <= 0 || ring.ring_bytes < ring.chunk_bytes) return false;
  const std::int64_t slots = ring.ring_bytes / ring.chunk_bytes;
  std::int64_t held = 0;  // chunks of unfinished tasks before `task`, which keep their slots
  std::int64_t unfinished = 0;
  std::int64_t oldest_held = -1;
  const auto chunks_of = [&](TaskId id) { return (program_.tasks[id].ring_bytes + ring.chunk_bytes - 1) / ring.chunk_bytes; };
  const std::vector<TaskId>& stream = program_.streams[sm];
  StreamFront& front = fronts_[sm];
  for (; front.tasks < stream.size() && finished_[stream[front.tasks]]; ++front.tasks) front.chunks += chunks_of(stream[front.tasks]);
  std::int64_t chunk = front.chunks;
  for (std::size_t i = front.tasks; i < stream.size(); ++i) {
    const TaskId id = stream[i];
    const std::int64_t chunks = chunks_of(id);
    if (unfinished > ring.depth) return false;
    const std::int64_t last = chunk + chunks - 1;
    if (oldest_held >= 0 && last - slots >= oldest_held) return false;  // would overwrite a chunk that nobody has consumed
    if (id == task) return true;
    if (!finished_[id]) {
      held += chunks;
      ++unfinished;
      if (oldest_held < 0) oldest_held = chunk;
      if (held > slots) return false;
    }
    chunk += chunks;
  }
  return false;
}

Status Queues::run(std::int64_t epoch, int steps, Rng& rng, const std::function<Status(TaskId, int)>& execute) {
  std::fill(heads_.begin(), heads_.end(), std::size_t{0});
  std::fill(steps_.begin(), steps_.end(), 0);
  std::fill(finished_.begin(), finished_.end(), char{0});
  std::fill(fronts_.begin(), fronts_.end(), StreamFront{});
  for (Waiters& waiters : waiting_) waiters.sms.clear();
  std::vector<std::int32_t> candidates(program_.queues.size());
  std::iota(candidates.begin(), candidates.end(), 0);
  std::size_t left = program_.tasks.size() * static_cast<std::size_t>(steps);
  while (!candidates.empty()) {
    const std::size_t pick = static_cast<std::size_t>(rng.below(candidates.size()));
    const std::int32_t sm = candidates[pick];
    candidates[pick] = candidates.back();
    candidates.pop_back();
    if (heads_[sm] == program_.queues[sm].size()) {
      if (heads_[sm] == 0 || steps_[sm] + 1 >= steps) continue;
      ++steps_[sm];
      heads_[sm] = 0;
      fronts_[sm] = {};
      for (const TaskId done : program_.queues[sm]) finished_[done] = 0;
    }
    const TaskId id = program_.queues[sm][heads_[sm]];
    const Task& task = program_.tasks[id];
    if (const Unmet unmet = first_unmet(task, epoch + steps_[sm]); unmet.counter != kNone) {
      Waiters& waiters = waiting_[unmet.counter];
      waiters.lowest = waiters.sms.empty() ? unmet.needed : std::min(waiters.lowest, unmet.needed);
      waiters.sms.push_back(sm);
      continue;
    }
    // The ring of an SM moves only when that SM finishes a task, so one that is stuck here is stuck for good.
    if (!stream_reaches(sm, id)) continue;
    AMK_CHECK(execute(id, steps_[sm]));
    finished_[id] = 1;
    ++heads_[sm];
    --left;
    candidates.push_back(sm);
    if (task.signal == kNone) continue;
    ++counters_[task.signal];
    Waiters& waiters = waiting_[task.signal];
    if (waiters.sms.empty() || counters_[task.signal] < waiters.lowest) continue;
    candidates.insert(candidates.end(), waiters.sms.begin(), waiters.sms.end());
    waiters.sms.clear();
  }
  if (left > 0) return tl::unexpected<Error>(deadlock(epoch));
  return {};
}

Error Queues::deadlock(std::int64_t epoch) const {
  constexpr std::size_t kShown = 8;
  Json starved = Json::array();
  std::string shown;
  for (std::size_t sm = 0; sm < heads_.size() && starved.size() < kShown; ++sm) {
    if (heads_[sm] == program_.queues[sm].size()) continue;
    const TaskId id = program_.queues[sm][heads_[sm]];
    const std::string name = task_name(program_, id);
    const Unmet unmet = first_unmet(program_.tasks[id], epoch + steps_[sm]);
    if (unmet.counter == kNone) {
      starved.push_back({{"task", name}, {"ring", program_.ring.ring_bytes}});
      shown += (shown.empty() ? "" : "; ") + name + " waits for its weights";
      continue;
    }
    const std::string& counter = program_.counters[unmet.counter].name;
    const std::int64_t value = counters_[unmet.counter];
    starved.push_back({{"task", name}, {"counter", counter}, {"value", value}, {"needed", unmet.needed}});
    shown += (shown.empty() ? "" : "; ") + name + " waits for " + counter + " = " + std::to_string(unmet.needed) + ", which stays at " +
             std::to_string(value);
  }
  return Error{ErrorKind::Rejected, "deadlock: " + shown, {{"rule", "deadlock"}, {"starved", std::move(starved)}}};
}

}  // namespace amk::vm
