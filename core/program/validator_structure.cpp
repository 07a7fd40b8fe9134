#include "core/program/validator_structure.h"

#include <string_view>
#include <unordered_set>

#include "core/program/validator_access.h"

namespace amk::validation {

namespace {

Verdict malformed(const Program& program, std::string message, BufferId buffer = kNone) {
  Finding finding;
  finding.rule = "malformed";
  finding.message = std::move(message);
  finding.buffer = buffer;
  return reject(program, std::move(finding));
}

Verdict check_header(const Program& p) {
  if (p.version != kProgramVersion) return malformed(p, cat("version is ", p.version, "; this validator knows version ", kProgramVersion));
  if (p.sm_count < 1 || p.sm_count > kMaxSms) return malformed(p, cat("sm_count is ", p.sm_count, "; accepted: 1 to ", kMaxSms));
  if (p.queues.size() != static_cast<std::size_t>(p.sm_count))
    return malformed(p, cat("there are ", p.queues.size(), " queues for ", p.sm_count, " SMs; there must be one for each"));
  if (p.streams.size() != static_cast<std::size_t>(p.sm_count))
    return malformed(p, cat("there are ", p.streams.size(), " weight streams for ", p.sm_count, " SMs; there must be one for each"));
  if (p.batch < 1 || p.batch > kMaxBatch) return malformed(p, cat("batch is ", p.batch, "; accepted: 1 to ", kMaxBatch));
  if (p.max_seq < 1 || p.max_seq == kAllPositions) return malformed(p, cat("max_seq is ", p.max_seq, "; accepted: 1 to ", kAllPositions - 1));
  if (p.max_steps < 1) return malformed(p, cat("max_steps is ", p.max_steps, "; accepted: 1 or more"));
  if (p.step_sync != StepSync::Launch && p.step_sync != StepSync::Persistent) return malformed(p, "step_sync is neither launch nor persistent");
  // Ids are 32 bits wide, in the program and in the clocks.
  constexpr std::size_t kMaxItems = 1u << 30;
  if (p.tasks.size() > kMaxItems || p.buffers.size() > kMaxItems || p.counters.size() > kMaxItems || p.storages.size() > kMaxItems)
    return malformed(p, cat("more than ", kMaxItems, " tasks, buffers, counters or storages"));
  return {};
}

Verdict check_storages(const Program& p) {
  for (const Storage& storage : p.storages) {
    if (storage.space > Space::Const) return malformed(p, cat("storage ", storage.name, " is in no known space"));
    if (storage.bytes < 0 || storage.bytes > kMaxStorageBytes)
      return malformed(p, cat("storage ", storage.name, " has ", storage.bytes, " bytes; accepted: 0 to ", kMaxStorageBytes));
  }
  return {};
}

// product(shape) · element size, or -1 when a dimension is not positive or the product exceeds what any storage may have.
std::int64_t shaped_bytes(const Buffer& buffer) {
  std::int64_t bytes = dtype_bytes(buffer.dtype);
  for (const std::int64_t dim : buffer.shape) {
    if (dim < 1 || dim > kMaxStorageBytes / bytes) return -1;
    bytes *= dim;
  }
  return bytes;
}

Verdict check_buffer(const Program& p, BufferId id, std::vector<BufferId>& owner_of_storage) {
  const Buffer& b = p.buffers[static_cast<std::size_t>(id)];
  if (b.space > Space::Const) return malformed(p, cat("buffer ", b.name, " is in no known space"), id);
  if (b.dtype > DType::I32) return malformed(p, cat("buffer ", b.name, " has no known element type"), id);
  if (b.storage < 0 || static_cast<std::size_t>(b.storage) >= p.storages.size())
    return malformed(p, cat("buffer ", b.name, " names storage ", b.storage, "; there are ", p.storages.size()), id);
  const Storage& storage = p.storages[static_cast<std::size_t>(b.storage)];
  if (storage.space != b.space)
    return malformed(p, cat("buffer ", b.name, " (", to_string(b.space), ") lies in storage ", storage.name, " of space ", to_string(storage.space)),
                     id);
  if (const std::int64_t bytes = shaped_bytes(b); bytes < 0 || bytes != b.bytes)
    return malformed(p, cat("buffer ", b.name, " has ", b.bytes, " bytes, which its shape and element type do not give"), id);
  Finding finding;
  finding.buffer = id;
  if (b.offset < 0 || b.offset > storage.bytes || b.bytes > storage.bytes - b.offset) {
    finding.rule = "out-of-range";
    finding.message = cat("buffer ", b.name, " takes bytes [", b.offset, ",+", b.bytes, ") of storage ", storage.name, ", which has ", storage.bytes);
    return reject(p, std::move(finding));
  }
  if (b.offset % kBufferAlignment != 0) {
    finding.rule = "misaligned";
    finding.message =
        cat("buffer ", b.name, " begins at byte ", b.offset, " of storage ", storage.name, "; accepted: multiples of ", kBufferAlignment);
    return reject(p, std::move(finding));
  }
  BufferId& owner = owner_of_storage[static_cast<std::size_t>(b.storage)];
  if (b.space != Space::Activation && owner != kNone) {
    finding.rule = "page-alias";
    finding.other_buffer = owner;
    finding.message = cat("buffers ", p.buffers[static_cast<std::size_t>(owner)].name, " and ", b.name, " share storage ", storage.name,
                          "; only activations may share");
    return reject(p, std::move(finding));
  }
  owner = id;
  if (b.space == Space::Kv) {
    if (b.shape.size() < 2) return malformed(p, cat("KV buffer ", b.name, " needs a shape [heads, positions, elements of a row]"), id);
    if (const std::int64_t positions = kv_shape(b).positions; positions < p.max_seq) {
      finding.rule = "length";
      finding.message = cat("KV buffer ", b.name, " holds ", positions, " positions; the program promises ", p.max_seq);
      finding.pos_lo = static_cast<std::int32_t>(positions);
      finding.pos_hi = p.max_seq;
      return reject(p, std::move(finding));
    }
  }
  return {};
}

}  // namespace

Verdict check_structure(const Program& p) {
  if (Verdict v = check_header(p)) return v;
  if (Verdict v = check_storages(p)) return v;
  std::vector<BufferId> owner(p.storages.size(), kNone);
  std::unordered_set<std::string_view> names;
  names.reserve(p.buffers.size());
  for (std::size_t i = 0; i < p.buffers.size(); ++i) {
    if (Verdict v = check_buffer(p, static_cast<BufferId>(i), owner)) return v;
    if (!names.insert(p.buffers[i].name).second)
      return malformed(p, cat("two buffers are named ", p.buffers[i].name, "; names are what weights and inputs are bound by"),
                       static_cast<BufferId>(i));
  }
  return check_tasks(p);
}

}  // namespace amk::validation
