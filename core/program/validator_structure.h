// The checks that need one look at each item: indices, sizes, alignment, counter totals, weight streams. After check_structure returned
// empty every index in the program is in range and no size computed from it overflows; the later passes rely on that.
// Internal to core/program. Pure.
#pragma once

#include "core/program/validator_report.h"

namespace amk::validation {

// The largest SM count that is accepted: clocks are tasks × SMs, so an absurd count must not decide how much memory is taken.
constexpr std::int32_t kMaxSms = 4096;
// Storages above this are refused, so that sums of offsets cannot overflow 64 bits.
constexpr std::int64_t kMaxStorageBytes = std::int64_t{1} << 50;
// Buffers begin on such boundaries: device code moves 16 bytes at a time.
constexpr std::int64_t kBufferAlignment = 16;

Verdict check_structure(const Program& program);  // "malformed", "out-of-range", "misaligned", "page-alias" (spaces that never share), "length"
Verdict check_tasks(const Program& program);      // part of check_structure: tasks, regions, queues
Verdict check_counters(const Program& program);   // "unmet-wait", "partial-wait", "stale-epoch", "counter-overflow"
Verdict check_streams(const Program& program);    // "ring-deadlock", "malformed", "misaligned"

}  // namespace amk::validation
