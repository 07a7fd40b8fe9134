#include <algorithm>

#include "core/program/validator_footprint.h"

namespace amk::validation {

void FootprintChecker::refuse(std::string why, const Region* region) {
  if (problem_) return;
  Finding finding;
  finding.rule = "footprint";
  finding.task = id_;
  finding.message = cat(task_name(p_, id_), ": ", why);
  if (region != nullptr) {
    finding.buffer = region->buffer;
    finding.begin = region->begin;
    finding.end = region->end;
  }
  problem_ = std::move(finding);
}

bool FootprintChecker::rows_within(std::int64_t limit) {
  const bool good = task_->row_begin >= 0 && task_->row_begin < task_->row_end && task_->row_end <= limit;
  if (!good) refuse(cat("rows [", task_->row_begin, ",", task_->row_end, ") are not a part of its operator's ", limit));
  return good;
}

std::int64_t FootprintChecker::record() const { return std::int64_t{spec_.gqa()} * (spec_.head_dim + kPartialTail); }

DType FootprintChecker::dtype_of(Elements elements) {
  return elements == Elements::Int8 ? DType::I8 : elements == Elements::Int32 ? DType::I32 : DType::F32;
}

void FootprintChecker::match(const Region& region, const Expected& e, bool reads) {
  const Buffer& buffer = p_.buffers[static_cast<std::size_t>(region.buffer)];
  const std::int64_t size = dtype_bytes(buffer.dtype);
  const bool is_float = buffer.dtype == DType::F32 || buffer.dtype == DType::F16 || buffer.dtype == DType::BF16;
  const bool type = e.elements == Elements::Float ? is_float : buffer.dtype == dtype_of(e.elements);
  // A vector or cache that the host fills before the launch (lower_instruction.h): check_tasks and the other footprints see to it that none writes
  // it.
  const bool given = reads && buffer.space == Space::Input && (e.space == Space::Activation || e.space == Space::Kv);
  if (buffer.space != e.space && !given)
    return refuse(cat(e.what, ": ", buffer.name, " is in space ", to_string(buffer.space), ", not ", to_string(e.space)), &region);
  if (!type) return refuse(cat(e.what, ": ", buffer.name, " holds ", to_string(buffer.dtype)), &region);
  if (!holds(region, e) || !in_format(region, e)) return;
  if (buffer.bytes != e.total * size)
    return refuse(cat(e.what, ": ", buffer.name, " has ", buffer.bytes / size, " elements, not ", e.total), &region);
  if (region.begin != e.slice.first * size || region.end != (e.slice.first + e.slice.count) * size || region.pos_stride != e.stride * size)
    return refuse(cat(e.what, ": bytes [", region.begin, ",", region.end, ") + position * ", region.pos_stride, " of ", buffer.name, "; it touches [",
                      e.slice.first * size, ",", (e.slice.first + e.slice.count) * size, ") + position * ", e.stride * size),
                  &region);
  const Positions when = positions_of(p_, *task_, region);
  const std::int64_t from = std::min<std::int64_t>(e.pos_lo, p_.max_seq);
  if (when.hi != p_.max_seq || std::min(when.lo, p_.max_seq) != from)
    refuse(cat(e.what, ": declared for positions [", when.lo, ",", when.hi, "); it is touched at [", from, ",", p_.max_seq, ")"), &region);
}

bool FootprintChecker::holds(const Region& region, const Expected& e) {
  if (e.space == Space::Weight) return true;
  Value& known = values_[static_cast<std::size_t>(region.buffer)];
  if (known == e.value) return true;
  if (known == Value{} && named(region, e.value)) {
    known = e.value;
    return true;
  }
  refuse(cat(e.what, ": ", p_.buffers[static_cast<std::size_t>(region.buffer)].name, ", where ", name_of(e.value), " belongs"), &region);
  return false;
}

bool FootprintChecker::in_format(const Region& region, const Expected& e) {
  if (e.elements != Elements::Float) return true;
  std::optional<DType>& format = e.space == Space::Weight ? weights_ : e.space == Space::Kv ? caches_ : activations_;
  const Buffer& buffer = p_.buffers[static_cast<std::size_t>(region.buffer)];
  if (!format) format = buffer.dtype;
  if (*format == buffer.dtype) return true;
  refuse(cat(e.what, ": ", buffer.name, " holds ", to_string(buffer.dtype), "; others of its kind hold ", to_string(*format)), &region);
  return false;
}

const Region* FootprintChecker::take_one(const std::vector<Region>& list, std::size_t& next, const Expected& expected, bool reads) {
  if (problem_) return nullptr;
  if (next == list.size()) {
    refuse(cat("no region for ", expected.what));
    return nullptr;
  }
  const Region& region = list[next++];
  match(region, expected, reads);
  return problem_ ? nullptr : &region;
}

const Region* FootprintChecker::take(bool reads, const Expected& expected) {
  Expected own = expected;
  own.slice.first += seq_ * own.total;
  own.total *= p_.batch;
  return reads ? take_one(task_->reads, next_read_, own, true) : take_one(task_->writes, next_write_, own, false);
}

// What all sequences share stands in the first one's list.
const Region* FootprintChecker::take_shared(const Expected& expected) {
  return seq_ == 0 ? take_one(task_->reads, next_read_, expected, true) : nullptr;
}

void FootprintChecker::vector(bool reads, std::string_view what, Holds holds, std::int64_t total, Slice slice) {
  // What only unfused schedules keep is fp32, so that fusing operators changes no number.
  const bool exact = holds == Holds::Qkv || holds == Holds::K || holds == Holds::ODelta || holds == Holds::GateUp || holds == Holds::DownDelta;
  take(reads, {what, {holds, std::max(layer(), 0)}, Space::Activation, exact ? Elements::Float32 : Elements::Float, total, slice});
}

void FootprintChecker::residual(bool reads, std::string_view what, std::int32_t number, std::int64_t total, Slice slice) {
  take(reads, {what, {Holds::Residual, number}, Space::Activation, Elements::Float32, total, slice});
}

void FootprintChecker::weight(std::string_view what, WeightBinding binding, std::int64_t total, Slice slice, Elements elements) {
  const Region* region = take_shared({what, {}, Space::Weight, elements, total, slice});
  if (region == nullptr) return;
  const Buffer& buffer = p_.buffers[static_cast<std::size_t>(region->buffer)];
  WeightBinding found = buffer.binding;
  if (found.matrix != Matrix::None) found.kind = binding.kind;  // means nothing then
  binding.layer = std::max(binding.layer, 0);
  if (found != binding) refuse(cat(what, ": ", buffer.name, " is filled with other weights"), region);
}

void FootprintChecker::head_norms() {
  if (!spec_.qk_norm) return;
  weight("the q norm weight", {Matrix::None, WeightKind::QNorm, layer(), false}, spec_.head_dim, {0, spec_.head_dim});
  weight("the k norm weight", {Matrix::None, WeightKind::KNorm, layer(), false}, spec_.head_dim, {0, spec_.head_dim});
}

void FootprintChecker::rope_table() {
  const std::int64_t all = std::int64_t{p_.max_seq} * spec_.head_dim;
  take_shared({"the rope table", {Holds::Rope, 0}, Space::Const, Elements::Float32, all, {0, all}});
}

// One region a split, awake from the first position at which the split has a key.
void FootprintChecker::partials(std::int32_t first_head, std::int32_t heads) {
  const std::int64_t splits = p_.attention.splits;
  if (task_->reads.size() - next_read_ < static_cast<std::size_t>(splits))
    return refuse(cat("fewer partials than the ", splits, " splits of attention"));
  const std::int64_t total = splits * spec_.kv_heads * record();
  for (std::int64_t s = 0; s < splits && !problem_; ++s)
    take(true, {"a split's partials",
                {Holds::Partials, layer()},
                Space::Activation,
                Elements::Float32,
                total,
                {(s * spec_.kv_heads + first_head) * record(), heads * record()},
                0,
                s * p_.attention.kv_block});
}

// One a kv head where AttentionO wrote it, which the residual's size says; how AttentionO writes it is that task's footprint.
std::int64_t FootprintChecker::sums() const {
  if (next_read_ >= task_->reads.size()) return 1;
  const Buffer& buffer = p_.buffers[static_cast<std::size_t>(task_->reads[next_read_].buffer)];
  const bool summed = buffer.dtype == DType::F32 && buffer.bytes == p_.batch * std::int64_t{spec_.kv_heads} * spec_.hidden * dtype_bytes(DType::F32);
  return summed ? spec_.kv_heads : 1;
}

void FootprintChecker::cache(bool reads, bool keys, const Expected& expected) {
  Expected own = expected;
  own.value = {keys ? Holds::KeyCache : Holds::ValueCache, layer()};
  const Region* region = take(reads, own);
  if (region == nullptr) return;
  const std::vector<std::int64_t>& shape = p_.buffers[static_cast<std::size_t>(region->buffer)].shape;
  std::vector<std::int64_t> wanted{spec_.kv_heads, p_.max_seq, spec_.head_dim};
  if (p_.batch > 1) wanted.insert(wanted.begin(), p_.batch);
  if (shape != wanted)
    refuse(cat(expected.what, ": its cache is not shaped [", p_.batch > 1 ? "sequences, " : "", "kv heads, max_seq, head_dim]"), region);
}

void FootprintChecker::cache_rows(bool keys, std::int64_t first, std::int64_t end) {
  const std::int64_t dim = spec_.head_dim;
  const std::int64_t total = std::int64_t{spec_.kv_heads} * p_.max_seq * dim;
  while (first < end && !problem_) {
    const std::int64_t head = first / dim;
    const std::int64_t stop = std::min(end, (head + 1) * dim);
    cache(false, keys,
          {keys ? "a row of the K cache" : "a row of the V cache",
           {},
           Space::Kv,
           Elements::Float,
           total,
           {head * p_.max_seq * dim + first % dim, stop - first},
           dim});
    first = stop;
  }
}

}  // namespace amk::validation
