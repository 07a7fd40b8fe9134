#include "server/dashboard/trace.h"

#include <algorithm>
#include <cmath>
#include <fstream>

namespace amk::dashboard {
namespace fs = std::filesystem;
namespace {

constexpr std::uintmax_t kLargestFile = 256u << 20;
constexpr int kPublish = 3;
static_assert(kTraceKindNames[kPublish] == "publish" && kPublish == kTraceKinds - 1);

// Nanoseconds are the clock's own resolution: more digits are noise.
double to_ns(double us) { return std::round(us * 1e3) / 1e3; }

}  // namespace

Json Trace::window(double from_us, double to_us, std::size_t bins, std::size_t most_events) const {
  if (!(from_us < to_us)) from_us = begin_us_, to_us = std::max(end_us_, begin_us_ + 1e-3);
  std::array<double, kTraceKinds> totals{};
  std::size_t touched = 0;
  for (const Event& e : events_) {
    const double overlap = std::min(to_us, e.start_us + e.dur_us) - std::max(from_us, e.start_us);
    if (overlap < 0 || e.start_us >= to_us) continue;
    ++touched;
    totals[e.kind] += overlap;
  }
  Json out = {{"from_us", from_us}, {"to_us", to_us},         {"begin_us", begin_us_}, {"end_us", end_us_},
              {"sms", sms_},        {"kinds", Json::array()}, {"totals_us", totals},   {"total_events", events_.size()}};
  for (const std::string_view kind : kTraceKindNames) out["kinds"].push_back(kind);
  if (touched <= most_events)
    add_events(out, from_us, to_us);
  else
    add_runs(out, from_us, to_us, std::max<std::size_t>(1, bins));
  return out;
}

void Trace::add_events(Json& out, double from_us, double to_us) const {
  Json sm = Json::array(), start = Json::array(), dur = Json::array(), kind = Json::array(), name = Json::array(), names = Json::array();
  std::vector<int> shown(names_.size(), -1);
  for (const Event& e : events_) {
    if (e.start_us >= to_us || e.start_us + e.dur_us < from_us) continue;
    if (shown[e.name] < 0) {
      shown[e.name] = static_cast<int>(names.size());
      names.push_back(names_[e.name]);
    }
    sm.push_back(e.row);
    start.push_back(to_ns(e.start_us));
    dur.push_back(to_ns(e.dur_us));
    kind.push_back(e.kind);
    name.push_back(shown[e.name]);
  }
  out["events"] = {
      {"sm", std::move(sm)}, {"start_us", std::move(start)}, {"dur_us", std::move(dur)}, {"kind", std::move(kind)}, {"name", std::move(name)}};
  out["names"] = std::move(names);
}

void Trace::add_runs(Json& out, double from_us, double to_us, std::size_t bins) const {
  Json sm = Json::array(), bin = Json::array(), length = Json::array(), kind = Json::array();
  const double width = (to_us - from_us) / static_cast<double>(bins);
  std::vector<std::array<double, kTraceKinds>> time(bins);
  for (std::size_t row = 0; row < sms_.size(); ++row) {
    std::fill(time.begin(), time.end(), std::array<double, kTraceKinds>{});
    for (std::size_t i = row_begin_[row]; i < row_begin_[row + 1]; ++i) {
      const Event& e = events_[i];
      const double a = std::max(from_us, e.start_us), b = std::min(to_us, e.start_us + e.dur_us);
      if (!(a < b)) continue;
      const auto first = static_cast<std::size_t>((a - from_us) / width);
      for (std::size_t k = first; k < bins; ++k) {
        const double left = from_us + static_cast<double>(k) * width;
        if (left >= b) break;
        time[k][e.kind] += std::min(b, left + width) - std::max(a, left);
      }
    }
    const auto add = [&](const auto& kind_of) {
      int current = -1;
      for (std::size_t k = 0; k < bins; ++k) {
        const int next = kind_of(time[k]);
        if (next >= 0 && next == current) {
          length.back() = length.back().get<int>() + 1;
        } else if (next >= 0) {
          sm.push_back(row);
          bin.push_back(k);
          length.push_back(1);
          kind.push_back(next);
        }
        current = next;
      }
    };
    add([](const auto& part) {
      const auto most = std::max_element(part.begin(), part.begin() + kPublish);
      return *most > 0 ? static_cast<int>(most - part.begin()) : -1;
    });
    add([width](const auto& part) { return part[kPublish] >= width / 2 ? kPublish : -1; });
  }
  out["bins"] = bins;
  out["runs"] = {{"sm", std::move(sm)}, {"bin", std::move(bin)}, {"length", std::move(length)}, {"kind", std::move(kind)}};
}

Result<fs::path> Traces::path_of(const std::string& schedule_id) const {
  const bool plain = !schedule_id.empty() && schedule_id.size() <= 100 &&
                     std::all_of(schedule_id.begin(), schedule_id.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'); });
  if (!plain) return bad_field("schedule_id", schedule_id, "an id as verdicts show it: lower-case letters and digits");
  return folder_ / (schedule_id + ".json");
}

bool Traces::has(const std::string& schedule_id) const {
  const auto path = path_of(schedule_id);
  std::error_code ignored;
  return path && fs::is_regular_file(*path, ignored);
}

Json Traces::list() const {
  struct Found {
    fs::file_time_type time;
    std::string id;
    std::uintmax_t bytes;
  };
  std::vector<Found> found;
  std::error_code code;
  for (fs::directory_iterator it(folder_, code), end; !code && it != end; it.increment(code)) {
    const fs::path& path = it->path();
    std::error_code gone;
    if (path.extension() != ".json" || !path_of(path.stem().string()) || !it->is_regular_file(gone)) continue;
    const auto time = it->last_write_time(gone);
    const auto bytes = it->file_size(gone);
    if (!gone) found.push_back({time, path.stem().string(), bytes});
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.time != b.time ? a.time > b.time : a.id < b.id; });
  constexpr std::size_t kMostListed = 200;
  Json out = Json::array();
  for (std::size_t i = 0; i < std::min(found.size(), kMostListed); ++i) out.push_back({{"schedule_id", found[i].id}, {"bytes", found[i].bytes}});
  return out;
}

Result<std::shared_ptr<const Trace>> Traces::open(const std::string& schedule_id) {
  AMK_TRY(path, path_of(schedule_id));
  std::error_code code;
  const auto time = fs::last_write_time(path, code);
  const auto bytes = code ? 0 : fs::file_size(path, code);
  if (code) return fail(ErrorKind::NotFound, "no trace of " + schedule_id + " in this workspace", {{"field", "schedule_id"}, {"value", schedule_id}});
  const std::lock_guard lock(mutex_);
  if (open_ && open_id_ == schedule_id && open_time_ == time && open_bytes_ == bytes) return open_;
  if (bytes > kLargestFile)
    return fail(ErrorKind::Unsupported, path.filename().string() + " has " + std::to_string(bytes) + " bytes; accepted: at most 256 MiB");
  // Read, not mapped: whoever writes the next trace may truncate this file.
  std::string text(bytes, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(bytes));
  if (in.gcount() != static_cast<std::streamsize>(bytes)) return fail(ErrorKind::Io, "cannot read " + path.string(), {{"path", path.string()}});
  AMK_TRY(trace, Trace::parse(text, path.filename().string()));
  open_ = std::make_shared<const Trace>(std::move(trace));
  open_id_ = schedule_id;
  open_time_ = time;
  open_bytes_ = bytes;
  return open_;
}

}  // namespace amk::dashboard
