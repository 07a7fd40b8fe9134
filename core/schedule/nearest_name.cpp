#include "core/schedule/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace amk {
namespace {

constexpr std::size_t kLongest = 64;  // bounds the quadratic work on hostile names

char lower_case(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (lower_case(a[i - 1]) != lower_case(b[j - 1]) ? 1 : 0);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

const std::string* nearest_name(std::string_view name, std::span<const std::string> known) {
  if (name.size() > kLongest) return nullptr;
  const std::string* best = nullptr;
  std::size_t best_distance = 0;
  for (const std::string& candidate : known) {
    const std::size_t d = distance(name, candidate);
    if (d * 3 > std::max(name.size(), candidate.size())) continue;
    if (best == nullptr || d < best_distance) {
      best = &candidate;
      best_distance = d;
    }
  }
  return best;
}

}  // namespace amk
