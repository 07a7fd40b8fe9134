#include "orchestrator/strategy/local_search.h"
#include "orchestrator/strategy/strategy.h"

namespace amk {
namespace {

using Maker = std::unique_ptr<Strategy> (*)(const SearchSpace&, const StrategyOptions&);

template <class T>
std::unique_ptr<Strategy> make(const SearchSpace& space, const StrategyOptions& options) {
  return std::make_unique<T>(space, options);
}

struct Entry {
  std::string_view name;
  Maker maker;
};

constexpr Entry kEntries[] = {
    {"random", make<RandomSearch>},
    {"local", make<LocalSearch>},
};

}  // namespace

Result<std::unique_ptr<Strategy>> make_strategy(std::string_view name, const SearchSpace& space, const StrategyOptions& options) {
  std::string accepted;
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.maker(space, options);
    accepted += (accepted.empty() ? "" : ", ") + std::string(entry.name);
  }
  return bad_field("strategy", std::string(name), accepted);
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

}  // namespace amk
