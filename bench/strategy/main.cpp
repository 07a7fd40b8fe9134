// bench/run strategy [--spaces DIR|FILE] [--only TEXT] [--asks N] [--known N]: what a suggestion costs when much is known, in each of amk's own
// spaces (subject.cpp), or in recorded ones. Median, 99th of a hundred and slowest of N asks (default 200), each followed by its tell: elapsed, and
// in the thread's processor time, which is what it takes of an idle core where the machine is busy with other things. What is known before them:
// --known points (default 150 and 10,000; of a space with fewer valid ones all but a tenth), three in four by lot, the others near the best until
// then.
#include <time.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "bench/strategy/subject.h"
#include "core/base/json.h"
#include "core/base/random.h"
#include "core/schedule/valid_points.h"
#include "orchestrator/prior/corpus_prior.h"
#include "orchestrator/strategy/archive.h"
#include "orchestrator/strategy/moves.h"
#include "orchestrator/strategy/strategy.h"

using namespace amk;

namespace {

double processor_ms() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return 1e3 * static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_nsec);
}

// `n` of what a search may have met, or as many as leave a tenth of the space.
std::vector<Observation> history(const Subject& subject, std::size_t n) {
  Archive archive(subject.space);
  Rng rng(n);
  while (archive.observations().size() < n) {
    std::optional<Point> point;
    if (archive.best() != nullptr && rng.below(4) == 0) point = perturbed(archive, archive.best()->point, 1 + static_cast<int>(rng.below(3)), rng);
    constexpr int kTries = 200'000;  // in the sparsest space that is known a thousand draws meet a valid point
    if (!point) point = archive.random_valid(rng, kTries);
    if (!point) break;
    if (archive.known(*point)) {
      // Nine in ten of what is drawn is known: so is the space.
      int met = 0;
      for (int i = 0; i < 1000; ++i)
        if (const auto other = archive.random_valid(rng, kTries)) met += archive.known(*other);
      if (met >= 900) break;
      continue;
    }
    archive.record({*point, subject.cost(*point)});
  }
  return archive.observations();
}

// Knows what the first half of the knobs does; learned from 2,000 rows, as a prior from another GPU is.
std::shared_ptr<const Prior> sibling(const Subject& subject) {
  PriorSource source;
  source.name = "sibling";
  const auto rows = history(subject, 2000);
  for (Observation row : rows) {
    Point half = row.point;
    for (std::size_t k = half.size() / 2; k < half.size(); ++k) half[k] = 0;
    if (subject.space.violated(half) == nullptr) row.cost = subject.cost(half);
    source.rows.push_back(std::move(row));
  }
  return learn_prior(subject.space, {}, {std::move(source)}, {}, 7).prior;
}

void line(const std::string& metric, double ms) {
  const Json out = {{"bench", "strategy"}, {"metric", metric}, {"value", ms}, {"unit", "ms"}};
  std::printf("%s\n", out.dump().c_str());
  std::fflush(stdout);
}

void lines(const std::string& prefix, std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  line(prefix + "median", ms[ms.size() / 2]);
  line(prefix + "p99", ms[ms.size() * 99 / 100]);
  line(prefix + "slowest", ms.back());
}

struct Command {
  std::string spaces, only;
  std::vector<std::size_t> known{150, 10'000};
  std::size_t asks = 200;
};

Result<Command> command(int argc, char** argv) {
  Command out;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--spaces" || flag == "--only") {
      if (value.empty())
        return bad_field(flag, value, flag == "--spaces" ? "a recorded space, or a folder of such" : "a part of SPACE/STRATEGY/after_KNOWN");
      (flag == "--spaces" ? out.spaces : out.only) = value;
      continue;
    }
    if (flag != "--asks" && flag != "--known") return bad_field("option", flag, "--spaces DIR|FILE, --only TEXT, --asks N, --known N");
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < 1 || number > 1'000'000)
      return bad_field(flag, value, "a whole number from 1 to 1000000");
    if (flag == "--asks")
      out.asks = number;
    else
      out.known = {number};
  }
  return out;
}

Status measure(const Subject& subject, const Command& command) {
  if (subject.space.valid && (subject.name + "/prepare").find(command.only) != std::string::npos) {
    const double p0 = processor_ms();
    (void)subject.space.valid->places();
    line(subject.name + "/prepare/once/processor_median", processor_ms() - p0);  // before the first draw
  }
  std::vector<std::string> names = strategy_names();
  names.push_back(std::string(kDefaultStrategy) + "+prior");
  for (const std::size_t wanted : command.known) {
    std::vector<Observation> known;
    for (const std::string& shown : names) {
      const std::string about = subject.name + "/" + shown + "/after_" + std::to_string(wanted);
      if (about.find(command.only) == std::string::npos) continue;
      if (known.empty()) known = history(subject, wanted);
      StrategyOptions options;
      std::string name = shown;
      if (const auto plus = shown.find('+'); plus != std::string::npos) options.prior = sibling(subject), name.resize(plus);
      AMK_TRY(strategy, make_strategy(name, subject.space, options));
      for (const Observation& o : known) strategy->tell(o);
      std::vector<double> elapsed, processor;
      for (std::size_t i = 0; i < command.asks; ++i) {
        const auto t0 = std::chrono::steady_clock::now();
        const double p0 = processor_ms();
        const auto points = strategy->ask(1);
        if (points.empty()) break;  // all of the space is known
        strategy->tell({points[0], subject.cost(points[0])});
        processor.push_back(processor_ms() - p0);
        elapsed.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t0).count());
      }
      if (elapsed.empty()) continue;
      const std::string prefix = subject.name + "/" + shown + "/after_" + std::to_string(known.size()) + "/";
      lines(prefix, elapsed);
      lines(prefix + "processor_", processor);
    }
  }
  return {};
}

Status run(int argc, char** argv) {
  AMK_TRY(given, command(argc, argv));
  AMK_TRY(subjects, given.spaces.empty() ? own_subjects() : recorded_subjects(given.spaces));
  for (const Subject& subject : subjects) AMK_CHECK(measure(subject, given));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const Status done = run(argc, argv);
  if (done) return 0;
  std::fprintf(stderr, "bench/strategy: %s\n", done.error().message.c_str());
  return done.error().kind == ErrorKind::InvalidArgument ? 2 : 3;
}
