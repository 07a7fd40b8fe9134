// Trace::parse, event by event: a trace of a large model is tens of megabytes, as a document it would be a gigabyte.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "server/dashboard/trace.h"

namespace amk::dashboard {

namespace {

constexpr std::size_t kMostEvents = 8'000'000, kMostNames = 100'000, kLongestName = 200;
constexpr std::int64_t kMostSms = 4096;

}  // namespace

class TraceReader : public nlohmann::json_sax<Json> {
 public:
  explicit TraceReader(Trace& trace) : trace_(trace) {}
  std::string problem;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t v) override { return number(static_cast<double>(v)); }
  bool number_unsigned(number_unsigned_t v) override { return number(static_cast<double>(v)); }
  bool number_float(number_float_t v, const string_t&) override { return number(v); }
  bool string(string_t& v) override {
    if (in_event()) {
      if (key_ == "ph") complete_ = v == "X";
      if (key_ == "name") name_ = v.substr(0, kLongestName);
      if (key_ == "cat") {
        const auto at = std::find(kTraceKindNames.begin(), kTraceKindNames.end(), v);
        kind_ = at == kTraceKindNames.end() ? -1 : static_cast<int>(at - kTraceKindNames.begin());
      }
    }
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    ++depth_;
    if (depth_ == event_depth_) {
      complete_ = false;
      kind_ = -1;
      name_.clear();
      ts_.reset();
      dur_.reset();
      tid_.reset();
    }
    return depth_ < 64 || refuse("nested deeper than 64");
  }
  bool key(string_t& k) override {
    if (depth_ == 1 || depth_ == event_depth_) key_ = k;
    return true;
  }
  bool end_object() override {
    if (depth_ == event_depth_ && !add()) return false;
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    // The events are the members of the top array, or of the top object's traceEvents.
    if (depth_ == 0 || (depth_ == 1 && event_depth_ == 0 && key_ == "traceEvents")) {
      event_depth_ = depth_ + 2;
      found_ = true;
    }
    ++depth_;
    return depth_ < 64 || refuse("nested deeper than 64");
  }
  bool end_array() override {
    --depth_;
    if (depth_ + 2 == event_depth_) event_depth_ = 0;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return refuse("syntax error at byte " + std::to_string(position));
  }

  bool finish() {
    if (!found_) return refuse("no traceEvents");
    if (trace_.events_.empty()) return refuse("no complete event (ph \"X\") of a known category");
    for (const auto& [sm, row] : rows_) trace_.sms_.push_back(sm);
    std::sort(trace_.sms_.begin(), trace_.sms_.end());
    std::vector<std::uint32_t> place(rows_.size());
    for (const auto& [sm, row] : rows_)
      place[row] = static_cast<std::uint32_t>(std::lower_bound(trace_.sms_.begin(), trace_.sms_.end(), sm) - trace_.sms_.begin());
    trace_.begin_us_ = std::numeric_limits<double>::infinity();
    trace_.end_us_ = -trace_.begin_us_;
    for (Trace::Event& e : trace_.events_) {
      e.row = place[e.row];
      trace_.begin_us_ = std::min(trace_.begin_us_, e.start_us);
      trace_.end_us_ = std::max(trace_.end_us_, e.start_us + e.dur_us);
    }
    std::sort(trace_.events_.begin(), trace_.events_.end(),
              [](const Trace::Event& a, const Trace::Event& b) { return a.row != b.row ? a.row < b.row : a.start_us < b.start_us; });
    trace_.row_begin_.assign(trace_.sms_.size() + 1, 0);
    for (const Trace::Event& e : trace_.events_) ++trace_.row_begin_[e.row + 1];
    std::partial_sum(trace_.row_begin_.begin(), trace_.row_begin_.end(), trace_.row_begin_.begin());
    return true;
  }

 private:
  bool refuse(std::string why) {
    if (problem.empty()) problem = std::move(why);
    return false;
  }
  bool in_event() const { return event_depth_ != 0 && depth_ == event_depth_; }
  bool number(double v) {
    if (!in_event()) return true;
    if (key_ == "ts") ts_ = v;
    if (key_ == "dur") dur_ = v;
    if (key_ == "tid") tid_ = v;
    return true;
  }
  bool add() {
    if (!complete_ || kind_ < 0) return true;
    const auto sensible = [](const std::optional<double>& v) { return v && std::isfinite(*v) && std::abs(*v) < 1e12; };
    if (!sensible(ts_) || !sensible(dur_) || *dur_ < 0)
      return refuse("an event of category " + std::string(kTraceKindNames[kind_]) + " lacks a sensible ts or dur");
    if (!tid_ || *tid_ < 0 || *tid_ >= kMostSms || *tid_ != std::floor(*tid_)) return refuse("tid must be an SM number from 0 to 4095");
    if (trace_.events_.size() == kMostEvents) return refuse("more than 8 million events");
    const auto row = rows_.try_emplace(static_cast<std::int64_t>(*tid_), static_cast<std::uint32_t>(rows_.size())).first->second;
    auto name = names_.find(name_);
    if (name == names_.end()) {
      if (names_.size() == kMostNames) return refuse("more than 100,000 different names");
      name = names_.emplace(name_, static_cast<std::uint32_t>(trace_.names_.size())).first;
      trace_.names_.push_back(name_);
    }
    trace_.events_.push_back({row, name->second, static_cast<std::uint8_t>(kind_), *ts_, *dur_});
    return true;
  }

  Trace& trace_;
  int depth_ = 0, event_depth_ = 0;  // event_depth_: depth inside an event's object, 0 outside the list of events
  bool found_ = false;
  std::string key_;
  bool complete_ = false;
  int kind_ = -1;
  std::string name_;
  std::optional<double> ts_, dur_, tid_;
  std::unordered_map<std::int64_t, std::uint32_t> rows_;
  std::unordered_map<std::string, std::uint32_t> names_;
};

Result<Trace> Trace::parse(std::string_view text, std::string_view what) {
  Trace trace;
  TraceReader reader(trace);
  const bool read = Json::sax_parse(text.begin(), text.end(), &reader, nlohmann::detail::input_format_t::json, true, false);
  if (!read || !reader.finish())
    return fail(ErrorKind::Corrupt, std::string(what) + ": no trace: " + (reader.problem.empty() ? "syntax error" : reader.problem));
  return trace;
}

}  // namespace amk::dashboard
