#include "kernels/verdict.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/family.h"

namespace amk {
namespace {

template <class Enum, std::size_t N>
using Names = std::array<std::pair<Enum, std::string_view>, N>;

constexpr Names<VerdictStatus, 6> kStatusNames = {{{VerdictStatus::Ok, "ok"},
                                                   {VerdictStatus::Rejected, "rejected"},
                                                   {VerdictStatus::Incorrect, "incorrect"},
                                                   {VerdictStatus::Crash, "crash"},
                                                   {VerdictStatus::Timeout, "timeout"},
                                                   {VerdictStatus::Unavailable, "unavailable"}}};
constexpr Names<Decision, 3> kDecisionNames = {
    {{Decision::Faster, "faster"}, {Decision::Slower, "slower"}, {Decision::Inconclusive, "inconclusive"}}};

template <class Enum, std::size_t N>
std::string_view name_of(const Names<Enum, N>& names, Enum value) {
  for (const auto& [key, text] : names)
    if (key == value) return text;
  return names[0].second;
}

template <class T, class Convert>
Json nullable(const std::optional<T>& value, Convert convert) {
  return value ? Json(convert(*value)) : Json(nullptr);
}
template <class T>
Json nullable(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
Json nullable_text(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

// JSON has no infinity: an error that is not finite (the candidate wrote NaN) is null, and reads back as infinity.
Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json correctness_json(const Correctness& c) {
  return {{"max_abs_err", finite_or_null(c.max_abs_err)},
          {"mean_abs_err", finite_or_null(c.mean_abs_err)},
          {"kl", finite_or_null(c.kl)},
          {"top1_agreement", c.top1_agreement},
          {"bound", c.bound},
          {"bitwise_repeatable", c.bitwise_repeatable},
          {"positions_checked", c.positions_checked}};
}

Json noise_json(const Noise& n) {
  return {{"mad_us", n.mad_us}, {"samples", n.samples}, {"rounds", n.rounds}, {"clock_mhz", n.clock_mhz}, {"throttled", n.throttled}};
}

Json versus_json(const Versus& v) {
  return {{"incumbent", v.incumbent},
          {"ratio", v.ratio},
          {"ci95", {finite_or_null(v.ci_low), finite_or_null(v.ci_high)}},
          {"decision", to_string(v.decision)}};
}

Json rejected_json(const RejectedBy& r) { return {{"rule", r.rule}, {"message", r.message}, {"witness", r.witness}}; }

// Reads the fields of one object; the first failure is kept and every later read is skipped, so that callers read straight through.
class Reader {
 public:
  Reader(const Json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {
    if (!object_.is_object()) refuse("", object_, "an object");
  }

  void number(const char* key, double& out) {
    if (const Json* v = want(key, &Json::is_number, "a number")) out = v->get<double>();
  }
  void finite_or_null(const char* key, double& out) {
    const Json* v = any(key);
    if (v != nullptr && v->is_null())
      out = std::numeric_limits<double>::infinity();
    else
      number(key, out);
  }
  void integer(const char* key, std::int64_t& out) {
    if (const Json* v = want(key, &Json::is_number_integer, "an integer")) out = v->get<std::int64_t>();
  }
  void boolean(const char* key, bool& out) {
    if (const Json* v = want(key, &Json::is_boolean, "true or false")) out = v->get<bool>();
  }
  void text(const char* key, std::string& out) {
    if (const Json* v = want(key, &Json::is_string, "a text")) out = v->get<std::string>();
  }
  void text_or_null(const char* key, std::string& out) {
    if (!absent(key)) text(key, out);
  }
  template <class T, class Read>
  void optional(const char* key, std::optional<T>& out, Read read) {
    if (absent(key)) return;
    T value{};
    read(value);
    if (!error_) out = std::move(value);
  }
  void optional_number(const char* key, std::optional<double>& out) {
    optional(key, out, [&](double& v) { number(key, v); });
  }
  void optional_integer(const char* key, std::optional<std::int64_t>& out) {
    optional(key, out, [&](std::int64_t& v) { integer(key, v); });
  }
  template <class Enum, std::size_t N>
  void choice(const char* key, const Names<Enum, N>& names, Enum& out) {
    std::string accepted, given;
    text(key, given);
    if (error_) return;
    for (const auto& [value, name] : names) {
      if (given == name) {
        out = value;
        return;
      }
      accepted += (accepted.empty() ? "" : ", ") + std::string(name);
    }
    refuse(key, given, "one of " + accepted);
  }
  const Json* object(const char* key) { return want(key, &Json::is_object, "an object"); }
  const Json* any(const char* key) {
    const auto found = error_ ? object_.end() : object_.find(key);
    if (error_) return nullptr;
    if (found == object_.end()) {
      refuse(key, nullptr, "present");
      return nullptr;
    }
    return &*found;
  }
  void refuse(std::string_view key, const Json& value, std::string_view accepted) {
    if (!error_) error_ = bad_field(prefix_ + std::string(key), value, accepted).value();
  }
  void adopt(Reader& nested) {
    if (!error_) error_ = std::move(nested.error_);
  }
  bool failed() const { return error_.has_value(); }
  Error take_error() { return std::move(*error_); }

 private:
  bool absent(const char* key) const {
    if (error_) return true;
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null();
  }
  const Json* want(const char* key, bool (Json::*is)() const noexcept, std::string_view accepted) {
    if (error_) return nullptr;
    const auto found = object_.find(key);
    if (found == object_.end() || !((*found).*is)()) {
      refuse(key, found == object_.end() ? Json(nullptr) : *found, accepted);
      return nullptr;
    }
    return &*found;
  }

  const Json& object_;
  std::string prefix_;
  std::optional<Error> error_;
};

// Reads a nullable nested object with its own Reader.
template <class T, class Read>
void nested(Reader& outer, const Json& json, const char* key, std::optional<T>& out, Read read) {
  if (outer.failed()) return;
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return;
  Reader inner(*found, std::string(key) + ".");
  T value{};
  if (!inner.failed()) read(inner, value);
  outer.adopt(inner);
  if (!outer.failed()) out = std::move(value);
}

void read_correctness(Reader& r, Correctness& c) {
  r.finite_or_null("max_abs_err", c.max_abs_err);
  r.finite_or_null("mean_abs_err", c.mean_abs_err);
  r.finite_or_null("kl", c.kl);
  r.number("top1_agreement", c.top1_agreement);
  r.number("bound", c.bound);
  r.boolean("bitwise_repeatable", c.bitwise_repeatable);
  r.integer("positions_checked", c.positions_checked);
}

void read_noise(Reader& r, Noise& n) {
  r.number("mad_us", n.mad_us);
  r.integer("samples", n.samples);
  r.integer("rounds", n.rounds);
  r.number("clock_mhz", n.clock_mhz);
  r.boolean("throttled", n.throttled);
}

void read_versus(Reader& r, Versus& v) {
  r.text("incumbent", v.incumbent);
  r.number("ratio", v.ratio);
  if (const Json* ci = r.any("ci95")) {
    // Too few samples leave the interval open above: null, as in to_json.
    if (ci->is_array() && ci->size() == 2 && (*ci)[0].is_number() && ((*ci)[1].is_number() || (*ci)[1].is_null())) {
      v.ci_low = (*ci)[0];
      v.ci_high = (*ci)[1].is_null() ? std::numeric_limits<double>::infinity() : (*ci)[1].get<double>();
    } else {
      r.refuse("ci95", *ci, "[low, high], high null when open");
    }
  }
  r.choice("decision", kDecisionNames, v.decision);
}

void read_rejected(Reader& r, RejectedBy& by) {
  r.text("rule", by.rule);
  r.text("message", by.message);
  if (const Json* witness = r.object("witness")) by.witness = *witness;
}

}  // namespace

std::string_view to_string(VerdictStatus status) { return name_of(kStatusNames, status); }
std::string_view to_string(Decision decision) { return name_of(kDecisionNames, decision); }

Decision decision_of(Comparison outcome) {
  return outcome == Comparison::Faster ? Decision::Faster : outcome == Comparison::Slower ? Decision::Slower : Decision::Inconclusive;
}

Verdict verdict_of(const Workload& workload, const Json& canonical) {
  Verdict verdict;
  verdict.workload = workload.id();
  verdict.gpu = workload.target().name;
  verdict.regime = workload.regime();
  verdict.config = canonical;
  verdict.schedule_id = workload.schedule_id(canonical);
  return verdict;
}

void reject(Verdict& verdict, const Error& error, std::string_view stage) {
  verdict.status = VerdictStatus::Rejected;
  verdict.valid = false;
  const auto witness = error.data.find("witness");
  verdict.rejected = RejectedBy{error.data.value("rule", std::string(stage)), error.message,
                                witness != error.data.end() && witness->is_object() ? *witness : Json::object()};
}

Json to_json(LatencyKind kind) {
  switch (kind) {
    case LatencyKind::None:
      return nullptr;
    case LatencyKind::MeasuredGpu:
      return "measured-gpu";
    case LatencyKind::Predicted:
      return "predicted";
  }
  return nullptr;
}

Json to_json(const Verdict& v) {
  return {{"verdict_id", v.verdict_id},
          {"schedule_id", v.schedule_id},
          {"workload", v.workload},
          {"gpu", v.gpu},
          {"device", v.device},
          {"regime", v.regime},
          {"config", v.config},
          {"status", to_string(v.status)},
          {"valid", v.valid},
          {"rejected_reason", v.rejected ? Json(v.rejected->message) : Json(nullptr)},
          {"rejected", nullable(v.rejected, rejected_json)},
          {"correct", v.correct},
          {"correctness", nullable(v.correctness, correctness_json)},
          {"latency_us", nullable(v.latency_us)},
          {"latency_kind", to_json(v.latency_kind)},
          {"noise", nullable(v.noise, noise_json)},
          {"bound_us", nullable(v.bound_us)},
          {"pct_of_roofline", nullable(v.pct_of_roofline)},
          {"read_bandwidth_gbs", nullable(v.read_bandwidth_gbs)},
          {"withheld", nullable_text(v.withheld)},
          {"versus", nullable(v.versus, versus_json)},
          {"tasks", nullable(v.tasks)},
          {"weight_bytes", nullable(v.weight_bytes)},
          {"registers", nullable(v.registers)},
          {"smem_bytes", nullable(v.smem_bytes)},
          {"build_ms", nullable(v.build_ms)},
          {"regions", v.regions},
          {"notes", v.notes}};
}

Result<Verdict> verdict_from_json(const Json& json) {
  Verdict v;
  Reader r(json, "");
  if (r.failed()) return tl::unexpected<Error>(r.take_error());
  const Json shape = to_json(v);
  for (const auto& [key, value] : json.items())
    if (!shape.contains(key)) return bad_field(key, value, "no such field in a verdict");
  r.text("verdict_id", v.verdict_id);
  r.text("schedule_id", v.schedule_id);
  r.text("workload", v.workload);
  r.text("gpu", v.gpu);
  r.text("device", v.device);
  r.text("regime", v.regime);
  if (const Json* config = r.object("config")) v.config = *config;
  r.choice("status", kStatusNames, v.status);
  r.boolean("valid", v.valid);
  nested(r, json, "rejected", v.rejected, read_rejected);
  r.boolean("correct", v.correct);
  nested(r, json, "correctness", v.correctness, read_correctness);
  r.optional_number("latency_us", v.latency_us);
  if (const Json* kind = r.any("latency_kind")) {
    bool known = false;
    for (LatencyKind each : {LatencyKind::None, LatencyKind::MeasuredGpu, LatencyKind::Predicted}) {
      if (*kind != to_json(each)) continue;
      v.latency_kind = each;
      known = true;
    }
    if (!known) r.refuse("latency_kind", *kind, "null, measured-gpu or predicted");
  }
  nested(r, json, "noise", v.noise, read_noise);
  r.optional_number("bound_us", v.bound_us);
  r.optional_number("pct_of_roofline", v.pct_of_roofline);
  r.optional_number("read_bandwidth_gbs", v.read_bandwidth_gbs);
  r.text_or_null("withheld", v.withheld);
  nested(r, json, "versus", v.versus, read_versus);
  r.optional_integer("tasks", v.tasks);
  r.optional_integer("weight_bytes", v.weight_bytes);
  r.optional_integer("registers", v.registers);
  r.optional_integer("smem_bytes", v.smem_bytes);
  r.optional_number("build_ms", v.build_ms);
  if (json.contains("regions")) {
    if (!json["regions"].is_object() && !json["regions"].is_null()) r.refuse("regions", json["regions"], "an object or null");
    v.regions = json["regions"];
  }
  r.text_or_null("notes", v.notes);
  if (r.failed()) return tl::unexpected<Error>(r.take_error());

  // The honesty rules hold for stored verdicts too: a file that was edited by hand must not smuggle a number in.
  if (v.latency_us && (!v.correct || !v.valid)) return bad_field("latency_us", *v.latency_us, "null unless valid and correct");
  if (v.latency_us.has_value() != (v.latency_kind != LatencyKind::None))
    return bad_field("latency_kind", to_json(v.latency_kind), "null exactly when latency_us is");
  if ((v.status == VerdictStatus::Rejected) != v.rejected.has_value())
    return bad_field("rejected", v.rejected ? rejected_json(*v.rejected) : Json(nullptr), "an object exactly when status is rejected");
  return v;
}

}  // namespace amk
