#include "core/program/lower_order.h"

#include <algorithm>

namespace amk::lowering {

std::vector<Dependency> InstructionOrder::add(std::vector<Dependency> needed) {
  // Latest first: an earlier instruction can be implied by a later one, never the other way round. Of two needs of one instruction, the whole one.
  std::sort(needed.begin(), needed.end(),
            [](const Dependency& a, const Dependency& b) { return a.from != b.from ? a.from > b.from : a.per_head < b.per_head; });
  Bits path(words_, 0);
  Bits whole(words_, 0);
  std::vector<Dependency> kept;
  for (const Dependency& d : needed) {
    if (test(whole, d.from) || (d.per_head && test(path, d.from))) continue;
    kept.push_back(d);
    const auto from = static_cast<std::size_t>(d.from);
    for (std::size_t w = 0; w < words_; ++w) {
      path[w] |= path_[from][w];
      whole[w] |= d.per_head ? whole_[from][w] : path_[from][w];
    }
    set(path, d.from);
    if (!d.per_head) set(whole, d.from);
  }
  path_.push_back(std::move(path));
  whole_.push_back(std::move(whole));
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace amk::lowering
