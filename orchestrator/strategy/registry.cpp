#include "orchestrator/strategy/composed.h"
#include "orchestrator/strategy/proposer.h"
#include "orchestrator/strategy/strategy.h"
#include "orchestrator/strategy/trial.h"

namespace amk {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Proposer> (*proposer)();  // nullptr: the portfolio
};

constexpr Entry kEntries[] = {
    {"portfolio", nullptr},
    {"random", random_proposer},
    {"local", local_proposer},
    {"ils", iterated_local_proposer},
    {"evolutionary", evolutionary_proposer},
    {"surrogate", surrogate_proposer},
    {"vnd", vnd_proposer},
    {"gp", cold_gaussian_proposer},
};

}  // namespace

Result<std::unique_ptr<Strategy>> make_strategy(std::string_view name, const SearchSpace& space, const StrategyOptions& options) {
  std::string accepted;
  for (const Entry& entry : kEntries) {
    if (entry.name == name) {
      if (entry.proposer == nullptr) {
        if (options.prior && !options.prior_is_model) return std::make_unique<Trial>(space, options);
        return std::make_unique<Portfolio>(space, options);
      }
      return std::make_unique<SingleStrategy>(entry.proposer(), space, options);
    }
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
