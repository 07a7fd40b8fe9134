#include "bench/replay/options.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string>

#include "core/base/json.h"

namespace amk {
namespace {

constexpr const char* kUsage =
    "\nusage: bench/run replay --spaces DIR|FILE [--strategy NAME|all] [--repeats N] [--limit N] [--seed N] [--samples N] [--threads N]\n"
    "                        [--prior FILE [--prior-rows N] [--prior-draw N]] [--plot FILE.svg]\n"
    "       bench/run replay --spaces DIR --siblings DRAWS [--prior-kind whole|lot|search|false] [--prior-rows N] [--repeats N] [--limit N] [--seed "
    "N]\n"
    "                        [--samples N] [--threads N]";

tl::unexpected<Error> wrong_usage(const std::string& problem) { return fail(ErrorKind::InvalidArgument, problem + kUsage); }

// A replay takes minutes: that its plot cannot be written is said before.
Status writable(const std::filesystem::path& plot) {
  if (plot.extension() != ".svg") return bad_field("--plot", plot.string(), "a name that ends in .svg");
  const std::filesystem::path folder = plot.has_parent_path() ? plot.parent_path() : ".";
  std::error_code code;
  if (!std::filesystem::is_directory(folder, code) || ::access(folder.c_str(), W_OK | X_OK) != 0)
    return bad_field("--plot", plot.string(), "a file in a folder that exists and can be written");
  return {};
}

}  // namespace

Result<ReplayCommand> replay_command(int argc, const char* const* argv) {
  ReplayCommand out;
  out.replay.strategy = kDefaultStrategy;
  std::int64_t repeats = out.replay.repeats, limit = static_cast<std::int64_t>(out.replay.limit), seed = 1, samples = out.replay.samples, threads = 0,
               rows = 0, draw = 0, siblings = 0;
  struct Number {
    std::int64_t* to;
    std::int64_t most;
  };
  const std::map<std::string, Number> numbers{{"--repeats", {&repeats, 100'000}},       {"--limit", {&limit, 1'000'000}},
                                              {"--seed", {&seed, 1'000'000'000}},       {"--samples", {&samples, 10'000}},
                                              {"--threads", {&threads, 1024}},          {"--prior-rows", {&rows, 1'000'000'000}},
                                              {"--prior-draw", {&draw, 1'000'000'000}}, {"--siblings", {&siblings, 1000}}};
  const std::map<std::string, std::filesystem::path*> paths{{"--spaces", &out.spaces}, {"--prior", &out.prior}, {"--plot", &out.plot}};
  std::string kind;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto number = numbers.find(flag);
    const auto path = paths.find(flag);
    if (number == numbers.end() && path == paths.end() && flag != "--strategy" && flag != "--prior-kind")
      return wrong_usage("unknown option " + flag);
    if (i + 1 >= argc) return wrong_usage(flag + " needs a value");
    const std::string value = argv[++i];
    if (path != paths.end()) {
      if (value.empty()) return bad_field(flag, value, "a path");
      *path->second = value;
    } else if (flag == "--prior-kind") {
      kind = value;
    } else if (number == numbers.end()) {
      out.replay.strategy = value;
    } else {
      std::int64_t given = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), given);
      if (error != std::errc() || end != value.data() + value.size() || given < 1 || given > number->second.most)
        return bad_field(flag, value, "a whole number from 1 to " + std::to_string(number->second.most));
      *number->second.to = given;
    }
  }
  if (out.spaces.empty()) return wrong_usage("--spaces names a folder of recorded spaces, or one file");
  if (siblings > 0 && (!out.prior.empty() || !out.plot.empty() || draw > 0 || out.replay.strategy != kDefaultStrategy))
    return wrong_usage(
        "--siblings names its priors and draws itself, and is of the portfolio: neither --prior, --prior-draw, --plot nor --strategy "
        "goes with it");
  const std::map<std::string, PriorKind> kinds{{"", rows > 0 ? PriorKind::Lot : PriorKind::Whole},
                                               {"whole", PriorKind::Whole},
                                               {"lot", PriorKind::Lot},
                                               {"search", PriorKind::Search},
                                               {"false", PriorKind::False}};
  if (kinds.count(kind) == 0) return bad_field("--prior-kind", kind, "whole, lot, search or false");
  out.kind = kinds.at(kind);
  if (!kind.empty() && siblings == 0) return wrong_usage("--prior-kind is of --siblings");
  const bool counted = out.kind == PriorKind::Lot || out.kind == PriorKind::Search;
  if (counted != (rows > 0)) return wrong_usage("--prior-rows says how many rows the kinds lot and search have, and is of these alone");
  if (out.prior.empty() && siblings == 0 && (rows > 0 || draw > 0)) return wrong_usage("--prior-rows and --prior-draw are of a --prior");
  std::vector<std::string> names = strategy_names();
  names.emplace_back("all");
  if (std::find(names.begin(), names.end(), out.replay.strategy) == names.end()) {
    std::string accepted;
    for (const std::string& name : names) accepted += (accepted.empty() ? "" : ", ") + name;
    return bad_field("--strategy", out.replay.strategy, accepted);
  }
  if (!out.plot.empty()) AMK_CHECK(writable(out.plot));
  out.replay.repeats = static_cast<int>(repeats);
  out.replay.limit = static_cast<std::size_t>(limit);
  out.replay.seed = static_cast<std::uint64_t>(seed);
  out.replay.samples = static_cast<int>(samples);
  out.replay.threads = static_cast<int>(threads);
  out.prior_rows = static_cast<std::size_t>(rows);
  out.prior_draw = static_cast<std::size_t>(draw);
  out.sibling_draws = static_cast<std::size_t>(siblings);
  return out;
}

}  // namespace amk
