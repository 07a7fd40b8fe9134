#include <algorithm>

#include "core/program/validator_structure.h"

namespace amk::validation {

namespace {

// Bulk copies and vector loads move 16 bytes at a time.
constexpr std::int64_t kCopyBytes = 16;

Verdict ring_finding(const Program& p, std::string_view rule, std::string message, TaskId task = kNone) {
  Finding finding;
  finding.rule = rule;
  finding.message = std::move(message);
  finding.task = task;
  return reject(p, std::move(finding));
}

Verdict check_ring(const Program& p) {
  const Ring& ring = p.ring;
  if (ring.ring_bytes < 0 || ring.chunk_bytes < 0 || ring.inflight_chunks < 0 || ring.depth < 0)
    return ring_finding(p, "malformed", "a ring size, window or depth is negative");
  return {};
}

std::int64_t kv_element_bytes(const Program& p, const Task& task) {
  for (const Region& region : task.reads) {
    const Buffer& buffer = p.buffers[static_cast<std::size_t>(region.buffer)];
    if (buffer.space == Space::Kv) return dtype_bytes(buffer.dtype);
  }
  return 0;
}

// A task whose weights or cache rows come through the ring: can every one of its chunks ever be placed, and is what is placed what it reads?
Verdict check_ring_task(const Program& p, TaskId id) {
  const Task& task = p.tasks[static_cast<std::size_t>(id)];
  const Ring& ring = p.ring;
  if (ring.chunk_bytes == 0 || ring.chunk_bytes % kCopyBytes != 0)
    return ring_finding(p, "misaligned", cat("ring chunks have ", ring.chunk_bytes, " bytes; accepted: positive multiples of ", kCopyBytes), id);
  if (ring.ring_bytes < ring.chunk_bytes)
    return ring_finding(p, "ring-deadlock",
                        cat(task_name(p, id), " streams weights in chunks of ", ring.chunk_bytes, " bytes through a ring of ", ring.ring_bytes,
                            ": no chunk ever fits, and the task waits for ever"),
                        id);
  if (ring.inflight_chunks == 0)
    return ring_finding(p, "ring-deadlock", cat(task_name(p, id), " streams weights, but no copy may be in flight: none ever lands"), id);
  if (task.op == Opcode::AttentionTile) {  // rows of the cache, all of those that may come: fewer hold fewer slots
    if (p.model.head_dim * kv_element_bytes(p, task) % kCopyBytes != 0)
      return ring_finding(p, "misaligned",
                          cat(task_name(p, id), " takes cache rows of ", p.model.head_dim * kv_element_bytes(p, task),
                              " bytes from the ring; copies need multiples of ", kCopyBytes),
                          id);
    if (task.ring_bytes == cache_bytes(p, task)) return {};
    return ring_finding(
        p, "malformed",
        cat(task_name(p, id), " takes up to ", task.ring_bytes, " bytes of the cache from the ring; its splits have ", cache_bytes(p, task)), id);
  }
  std::int64_t bytes = 0;
  for (const Region& region : task.reads) {
    const Buffer& buffer = p.buffers[static_cast<std::size_t>(region.buffer)];
    if (buffer.space != Space::Weight || !buffer.binding.rows_of_matrix()) continue;
    bytes += region.end - region.begin;
    if (region.begin % kCopyBytes != 0 || region.end % kCopyBytes != 0)
      return ring_finding(
          p, "misaligned",
          cat(task_name(p, id), " streams bytes [", region.begin, ",", region.end, ") of ", buffer.name, "; copies need multiples of ", kCopyBytes),
          id);
  }
  if (bytes != task.ring_bytes)
    return ring_finding(p, "malformed",
                        cat(task_name(p, id), " takes ", task.ring_bytes, " bytes from the ring, but reads ", bytes,
                            " bytes of packed weights: every later "
                            "task of its SM would find the wrong bytes"),
                        id);
  return {};
}

// The ring is a queue: chunks enter in stream order and leave in the order in which tasks run. Unless both orders are one, some task waits for a
// chunk behind chunks whose consumer comes after it. When they are one there is nothing more to prove: a chunk waits only for slots of chunks
// before it, those for their consumers, and these run earlier in the same queue; so ring edges only ever point backwards along a queue and close
// no cycle that the queue and counter edges do not close by themselves. Depth (at most `depth` earlier ring tasks unfinished) likewise.
Verdict check_stream(const Program& p, std::size_t sm) {
  const std::vector<TaskId>& stream = p.streams[sm];
  std::size_t next = 0;
  for (const TaskId expected : p.queues[sm]) {
    if (p.tasks[static_cast<std::size_t>(expected)].ring_bytes == 0) continue;
    if (Verdict v = check_ring_task(p, expected)) return v;
    if (next < stream.size() && stream[next] == expected) {
      ++next;
      continue;
    }
    const TaskId found = next < stream.size() ? stream[next] : kNone;
    const bool later = std::find(stream.begin() + static_cast<std::ptrdiff_t>(next), stream.end(), expected) != stream.end();
    if (!later || found < 0 || static_cast<std::size_t>(found) >= p.tasks.size())
      return ring_finding(p, "ring-deadlock",
                          cat(task_name(p, expected), " takes weights from the ring, but the stream of SM ", sm,
                              " does not load them at that place: it waits for ever, or takes another task's"),
                          expected);
    const std::string a = task_name(p, expected);
    const std::string b = task_name(p, found);
    Finding finding;
    finding.rule = "ring-deadlock";
    finding.task = expected;
    finding.other = found;
    finding.message = cat("SM ", sm, " runs ", a, " before ", b, ", but its stream loads them the other way round");
    finding.chain = {cat(a, " runs: waits for its chunks"),
                     cat("chunks of ", a, ": wait for the slots taken by ", b, ", ahead of them in the stream"),
                     cat("slots of ", b, ": wait until ", b, " has run"), cat(b, " runs: waits for ", a, ", ahead of it in the queue")};
    finding.missing = cat("stream order ", a, " before ", b);
    return reject(p, std::move(finding));
  }
  if (next == stream.size()) return {};
  const TaskId extra = stream[next];
  return ring_finding(p, "malformed",
                      cat("the stream of SM ", sm, " loads task ", extra, " at place ", next,
                          ", which its queue does not take from the ring: its slots are "
                          "never freed"),
                      extra);
}

}  // namespace

Verdict check_streams(const Program& program) {
  if (Verdict v = check_ring(program)) return v;
  for (std::size_t sm = 0; sm < program.streams.size(); ++sm)
    if (Verdict v = check_stream(program, sm)) return v;
  return {};
}

}  // namespace amk::validation
