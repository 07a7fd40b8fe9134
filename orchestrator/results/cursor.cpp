#include "orchestrator/results/cursor.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/base/hash.h"
#include "core/base/parse_json.h"

namespace amk {
namespace {

// Everything but limit and cursor: pages of different sizes may follow each other.
std::string fingerprint(const ResultsQuery& q) {
  Json filters = {q.workload,
                  q.gpu,
                  q.device_kind,
                  q.regime,
                  q.campaign ? raw(*q.campaign) : 0,
                  q.latency_kind,
                  q.schedule_id,
                  q.loop,
                  q.since_wall_us.value_or(-1),
                  q.until_wall_us.value_or(-1),
                  q.foreign,
                  static_cast<int>(q.sort)};
  for (const Outcome outcome : q.outcomes) filters.push_back(static_cast<int>(outcome));
  return hash128_hex(canonical_dump(filters)).substr(0, 12);
}

bool hex(std::string_view text, std::uint64_t& out) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out, 16);
  return code == std::errc() && end == text.data() + text.size() && text.size() == 16;
}

}  // namespace

std::string encode_cursor(const ResultsQuery& query, const Place& last) {
  char text[40];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(std::bit_cast<std::uint64_t>(last.key)),
                static_cast<unsigned long long>(last.id));
  return "r" + fingerprint(query) + text;
}

Result<Place> decode_cursor(const ResultsQuery& query, std::string_view cursor) {
  const auto wrong = [&] { return bad_field("cursor", cursor, "next_cursor of a page with the same filters and sort"); };
  std::uint64_t key = 0, id = 0;
  if (cursor.size() != 45 || cursor[0] != 'r' || cursor.substr(1, 12) != fingerprint(query) || !hex(cursor.substr(13, 16), key) ||
      !hex(cursor.substr(29, 16), id))
    return wrong();
  const Place place{std::bit_cast<double>(key), static_cast<std::int64_t>(id)};
  if (!std::isfinite(place.key) || place.id < 0) return wrong();
  return place;
}

}  // namespace amk
