// Where a page ended. Opaque to clients; a cursor of another query or made by hand is refused. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "orchestrator/results/results.h"

namespace amk {

// A place in the order of a query: its sort key, then the row.
struct Place {
  double key = 0;  // end_seq or latency
  std::int64_t id = 0;
};

std::string encode_cursor(const ResultsQuery& query, const Place& last);
Result<Place> decode_cursor(const ResultsQuery& query, std::string_view cursor);

}  // namespace amk
