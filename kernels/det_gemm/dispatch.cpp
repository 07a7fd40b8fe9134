#include "kernels/det_gemm/dispatch.h"

#include <array>

#include "kernels/det_gemm/defaults.h"

namespace amk::det_gemm {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"tuned", "default", "wgmma", "mma", "plain", "strict"};

struct Request {
  const Problem& problem;
  const Canonical shape;
  const Storage& storage;
  const GpuTarget& target;
  const TunedTable& table;
};

Result<Choice> planned(const Request& r, const Config& config, std::string name, std::string origin) {
  AMK_TRY(plan, make_plan(r.shape, r.storage, config, r.target));
  return Choice{std::move(plan), std::move(name), std::move(origin), false, {}};
}

std::string bucket_text(const TunedEntry& e) { return "m" + std::to_string(e.m) + " n" + std::to_string(e.n) + " k" + std::to_string(e.k); }

Result<Choice> from_table(const Request& r) {
  const std::vector<TunedHit> hits = r.table.find(r.problem, r.target);
  std::vector<std::string> warnings;
  for (const TunedHit& hit : hits) {
    const std::string where = (hit.match == Match::Exact ? "exact bucket " : "nearest bucket ") + bucket_text(*hit.entry);
    auto choice = planned(r, hit.entry->config, "tuned", where);
    if (choice) {
      choice->exact = hit.match == Match::Exact;
      choice->warnings = std::move(warnings);
      return choice;
    }
    warnings.push_back(where + " does not serve this call: " + choice.error().message);
  }
  std::string why = hits.empty() ? "no entry for this device, op, layout and output" : warnings.front();
  return fail(ErrorKind::Unsupported, why);
}

// One schedule per kind of problem, independent of M, N and K.
Config strict_config(const Request& r) {
  Canonical pinned = r.shape;
  pinned.m = 256;
  Storage storage = r.storage;
  return default_config(pinned, storage, r.target);
}

Result<Choice> serve(const Request& r, const std::string& name) {
  if (name == "tuned") return from_table(r);
  if (name == "default") return planned(r, default_config(r.shape, r.storage, r.target), name, "default");
  if (name == "plain") return planned(r, plain_kernel_config(), name, "default");
  if (name == "strict") return planned(r, strict_config(r), name, "pinned");
  for (const Path path : {Path::Wgmma, Path::Mma}) {
    if (name != (path == Path::Wgmma ? "wgmma" : "mma")) continue;
    const Config best = default_config(r.shape, r.storage, r.target);
    if (best.path == path) return planned(r, best, name, "default");
    for (const Config& candidate : candidate_configs(r.shape, r.storage, r.target, 1000))
      if (candidate.path == path) return planned(r, candidate, name, "default");
    return fail(ErrorKind::Unsupported, "no config of this path fits the device, shape and alignment");
  }
  std::string accepted;
  for (const std::string_view known : kNames) accepted += (accepted.empty() ? "" : ", ") + std::string(known);
  return bad_field("implementation", name, accepted);
}

}  // namespace

std::span<const std::string_view> implementation_names() { return kNames; }

Result<Choice> choose(const Problem& problem, const Storage& storage, const GpuTarget& target, const TunedTable& table,
                      std::span<const std::string> order) {
  static const std::vector<std::string> kDefaultOrder = {"tuned", "default", "mma", "plain"};
  if (order.empty()) order = kDefaultOrder;
  const Request request{problem, canonical(problem), storage, target, table};
  std::vector<std::string> warnings;
  for (const std::string& name : order) {
    auto choice = serve(request, name);
    if (choice) {
      warnings.insert(warnings.end(), choice->warnings.begin(), choice->warnings.end());
      choice->warnings = std::move(warnings);
      return choice;
    }
    if (choice.error().kind == ErrorKind::InvalidArgument) return choice;  // a name that does not exist never falls through
    choice.error().message = name + " cannot serve this call: " + choice.error().message;
    if (order.size() == 1) return choice;  // asked for by name
    warnings.push_back(choice.error().message);
  }
  std::string all;
  for (const std::string& w : warnings) all += (all.empty() ? "" : "; ") + w;
  return fail(ErrorKind::Unsupported, "no implementation of the list can serve this call: " + all);
}

}  // namespace amk::det_gemm
