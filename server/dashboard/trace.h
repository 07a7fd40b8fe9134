// The timeline of one token: which SM did what when, from a trace in Chrome's format (the JSON that Perfetto and chrome://tracing read).
// Immutable once parsed: thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace amk::dashboard {

inline constexpr int kTraceKinds = 4;
inline constexpr std::array<std::string_view, kTraceKinds> kTraceKindNames = {"wait-dependency", "wait-weights", "compute", "publish"};

class Trace {
 public:
  // Complete events (ph "X") with ts and dur in µs, tid = SM and cat one of kTraceKindNames; other events are passed over. An array of
  // events is accepted as well as {"traceEvents": […]}. `what` names the source in errors.
  static Result<Trace> parse(std::string_view text, std::string_view what);

  std::size_t events() const { return events_.size(); }
  // What happens in [from_us, to_us): {"from_us", "to_us", "begin_us", "end_us", "sms", "kinds", "totals_us": per kind, and either
  //  "events": {"sm", "start_us", "dur_us", "kind", "name"} with "names", when at most `most_events` events touch the window, or
  //  "runs": {"sm", "bin", "length", "kind"} and "bins": the window in `bins` equal parts, each coloured by what took most of it. Publishing is a
  //  warp of its own, beside the others: its runs overlap theirs, where it takes at least half of a part.
  // An empty window means the whole trace. `sms` are the SM numbers of the rows, ascending; "sm" is an index into it.
  Json window(double from_us, double to_us, std::size_t bins, std::size_t most_events) const;

 private:
  struct Event {
    std::uint32_t row = 0, name = 0;
    std::uint8_t kind = 0;
    double start_us = 0, dur_us = 0;
  };
  void add_events(Json& out, double from_us, double to_us) const;
  void add_runs(Json& out, double from_us, double to_us, std::size_t bins) const;

  std::vector<Event> events_;           // by row, then start
  std::vector<std::size_t> row_begin_;  // of each row, and the end
  std::vector<std::int64_t> sms_;
  std::vector<std::string> names_;
  double begin_us_ = 0, end_us_ = 0;
  friend class TraceReader;
};

// The traces of a workspace: WORKSPACE/traces/<schedule_id>.json. Thread-safe.
class Traces {
 public:
  explicit Traces(std::filesystem::path folder) : folder_(std::move(folder)) {}
  // [{"schedule_id", "bytes"}], newest first, at most 200.
  Json list() const;
  bool has(const std::string& schedule_id) const;
  // NotFound; InvalidArgument for what is no schedule_id. The last one read stays in memory.
  Result<std::shared_ptr<const Trace>> open(const std::string& schedule_id);

 private:
  Result<std::filesystem::path> path_of(const std::string& schedule_id) const;

  const std::filesystem::path folder_;
  std::mutex mutex_;
  std::string open_id_;
  std::filesystem::file_time_type open_time_{};
  std::uintmax_t open_bytes_ = 0;
  std::shared_ptr<const Trace> open_;
};

}  // namespace amk::dashboard
