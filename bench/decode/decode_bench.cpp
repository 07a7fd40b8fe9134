// Decode on the local GPU: microseconds per token of any number of configs, in turn, after a check against the oracle.
// decode --model llama-3.2-1b [--configs FILE] [--check TOKENS] [--native 0] [--positions 192:320[,8128:8256…]] [--rounds 5] [--max-seq 512]
//        [--cache DIR] [--trace FILE [--traces N]] [--fill ROWS] [--bandwidth 1] [--neighbours 1] [--seconds S] [--build-only sm_90a]
// Exit 0; 2: an argument is wrong; 77: no GPU; 3: anything else.
// FILE: one JSON object a line, {"name": …, "config": {…}, "batch": …, "launch": steps of a launch while timed,
// "ring_from": rows of a split from which kv_path ring takes the ring, "staged": at most so many cache rows of attention_o in shared memory at a
// time, "trace": whether --trace takes it (where no line says so, it takes all)}. --traces N: N steps of each, a file each.
// --fill ROWS (a multiple of 16): only so many positions are decoded before those that are timed, what the cache lacks is these rows again: contexts
// that would take longer to decode than to time.
// --neighbours 1: besides the first config, each of its knobs moved alone to each other value (an ablation). --seconds: no round begins later than
// that after the start, so that what was timed is printed. Prints one JSON object a line. MODEL@b8: every config is built for eight sequences a
// launch and for one, unless its "batch" says which; a checked batch must give each sequence the bits that it has alone; the last line is the ratio
// of the fastest batch to the fastest single sequence, timed in turn in this run.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>

#include "bench/decode/check.h"
#include "bench/decode/entry.h"
#include "bench/decode/timed.h"
#include "core/base/resources.h"
#include "core/base/stats.h"
#include "kernels/evaluator/gpu_report.h"

using namespace amk;
using namespace amk::bench;

namespace {

constexpr std::array kNames = {"--model", "--configs", "--check", "--native",  "--positions",  "--rounds",    "--max-seq",   "--cache",
                               "--trace", "--traces",  "--fill",  "--seconds", "--neighbours", "--bandwidth", "--build-only"};

class Arguments {
 public:
  static Result<Arguments> parse(int argc, char** argv) {
    Arguments out;
    for (int i = 1; i < argc; i += 2) {
      const std::string name = argv[i];
      if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) {
        std::string known;
        for (const char* k : kNames) known += std::string(known.empty() ? "" : ", ") + k;
        return bad_field("argument", name, known);
      }
      if (i + 1 == argc) return bad_field(name, "nothing", "a value");
      out.values_[name] = argv[i + 1];
    }
    return out;
  }
  bool has(const std::string& name) const { return values_.count(name) != 0; }
  std::string text(const std::string& name, const char* fallback) const { return has(name) ? values_.at(name) : fallback; }
  int number(const std::string& name, const char* fallback) const { return std::atoi(text(name, fallback).c_str()); }
  double real(const std::string& name, const char* fallback) const { return std::atof(text(name, fallback).c_str()); }
  bool flag(const std::string& name, const char* fallback) const { return text(name, fallback) == "1"; }
  std::string cache() const { return text("--cache", "/tmp/amk-cubins"); }

 private:
  std::map<std::string, std::string> values_;
};

void print(const Json& line) { std::cout << line.dump() << std::endl; }

class Watch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count(); }
  void note(const char* what) const { std::fprintf(stderr, "[%.1f s] %s\n", seconds(), what); }

 private:
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

// Fills the build cache on a machine without a GPU; the limits are those of an H200 unless the architecture says otherwise.
Status build_only(const ModelSpec& spec, const std::vector<Entry>& entries, const std::string& architecture, int max_seq, const std::string& folder) {
  DeviceLimits limits{architecture, std::atoi(architecture.c_str() + 3) / 10, 132, 232448, 1024};
  AMK_TRY(compiler, NvrtcCompiler::open());
  AMK_TRY(cache, BuildCache::open(folder));
  for (const Entry& e : entries) {
    PlanOptions options = options_of(e);
    auto built = build_candidate(spec, e.config, limits, max_seq, compiler, cache, options);
    if (built && e.traced) {
      options.trace = true;
      if (auto traced = build_candidate(spec, e.config, limits, max_seq, compiler, cache, options); !traced) built = std::move(traced);
    }
    Json line = {{"config", e.name}};
    if (built) {
      line.update({{"build_ms", built->build_ms},
                   {"log", built->kernel.log},
                   {"shared_bytes", built->plan.shared_bytes},
                   {"tasks", built->program->tasks.size()},
                   {"options", built->plan.request.options}});
    } else {
      line["error"] = to_json(built.error());
    }
    print(line);
  }
  return {};
}

// A kernel a thread. An entry that does not build or load says so.
void build_all(const GpuModel& model, std::vector<Entry>& entries) {
  std::vector<Result<BuiltCandidate>> builds(entries.size(), Result<BuiltCandidate>());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < entries.size(); ++i)
      threads.emplace_back([&, i] { builds[i] = model.build(entries[i].config, options_of(entries[i])); });
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Entry& e = entries[i];
    if (builds[i])
      e.built = std::move(*builds[i]);
    else
      e.error = builds[i].error().message + (builds[i].error().data.contains("log") ? "\n" + builds[i].error().data["log"].get<std::string>() : "");
  }
}

void load_all(GpuModel& model, std::vector<Entry>& entries) {
  for (Entry& e : entries) {
    if (!e.error.empty()) continue;
    auto program = model.load(e.built);
    if (program)
      e.program = std::make_unique<DeviceProgram>(std::move(*program));
    else
      e.error = program.error().message;
  }
}

Result<double> read_bandwidth(const GpuDevice& gpu, const std::string& folder) {
  AMK_TRY(compiler, NvrtcCompiler::open());
  AMK_TRY(cache, BuildCache::open(folder));
  AMK_TRY(measured, measure_read_bandwidth(gpu, compiler, cache));
  const double gbs = measured.gbs;
  print({{"bench", "decode"}, {"metric", "read_bandwidth"}, {"value", gbs}, {"unit", "GB/s"}, {"gpu", gpu.product}});
  return gbs;
}

Status check_all(GpuModel& model, std::vector<Entry>& entries, const std::shared_ptr<const Weights>& weights, int tokens, int max_seq, bool native) {
  AMK_TRY(reference, make_reference(weights, tokens, max_seq, native));
  print({{"model", model.spec().name},
         {"native_max_abs", reference.native_max},
         {"native_mean_abs", reference.native_mean},
         {"native_agree", reference.native_agree},
         {"of", tokens}});
  for (Entry& e : entries) {
    if (!e.program) continue;
    Entry* alone = nullptr;
    for (Entry& other : entries)
      if (other.batch == 1 && schedule_id(other.config) == schedule_id(e.config)) alone = &other;
    const Status s = e.batch > 1 ? check_batch(model, e, alone, tokens) : check(model, e, reference);
    if (!s) e.error = s.error().message;
  }
  return {};
}

using Range = std::pair<int, int>;  // of positions
Result<std::vector<Range>> ranges_of(const std::string& text, int max_seq) {
  std::vector<Range> ranges;
  std::istringstream positions(text);
  for (std::string range; std::getline(positions, range, ',');) {
    const int from = std::atoi(range.c_str()), to = std::atoi(range.substr(range.find(':') + 1).c_str());
    if (from < 0 || to <= from || to > max_seq) return bad_field("positions", range, "FIRST:LAST within --max-seq " + std::to_string(max_seq));
    ranges.emplace_back(from, to);
  }
  return ranges;
}

// A finite cache of every sequence behind the positions that are timed: decoded from `have` on, of `fill` > 0 rows no more than these, and repeated.
Status fill_cache(GpuModel& model, std::vector<Entry>& entries, int have, int first, int fill) {
  const int batch = model.sequence().batch(), until = fill > 0 ? std::min(fill, first) : first;
  for (Entry& e : entries) {
    if (!e.program || !e.error.empty()) continue;
    for (int s = 0; s < batch; ++s) AMK_CHECK(model.sequence().set_tokens(std::vector<int>{1}, 0, model.stream(), s));
    if (have < until) {
      if (auto us = time_tokens(model, e, have, until); !us) e.error = us.error().message;
    }
    if (until < first) AMK_CHECK(repeat_rows(model, until, first));
    if (e.batch == batch) break;
  }
  return {};
}

Status time_all(GpuModel& model, std::vector<Entry>& entries, const std::vector<Range>& ranges, int rounds, int fill, const Watch& watch,
                double until) {
  for (Entry& e : entries) e.token_us.resize(ranges.size());
  for (std::size_t r = 0; rounds > 0 && r < ranges.size(); ++r) {
    const auto [first, last] = ranges[r];
    AMK_CHECK(fill_cache(model, entries, r == 0 ? 0 : std::min(first, ranges[r - 1].second), first, fill));
    for (int round = 0; round < rounds && (round == 0 || watch.seconds() < until); ++round) {
      for (Entry& e : entries) {
        if (!e.program || !e.error.empty()) continue;
        auto us = time_tokens(model, e, first, last);
        if (us)
          e.token_us[r].push_back(*us);
        else
          e.error = us.error().message;
      }
    }
  }
  return {};
}

void trace_all(GpuModel& model, const std::vector<Entry>& entries, int position, int steps, const std::string& path) {
  int n = 0;
  const bool some = std::any_of(entries.begin(), entries.end(), [](const Entry& e) { return e.traced; });
  for (const Entry& e : entries) {
    if (!e.program || !e.error.empty() || (some && !e.traced)) continue;
    if (const Status s = trace(model, e, position, steps, path + "." + std::to_string(n++)); !s)
      std::fprintf(stderr, "trace: %s\n", s.error().message.c_str());
  }
}

Json line_of(const Entry& e, const ModelSpec& spec, const GpuDevice& gpu, const std::vector<Range>& ranges, double read_gbs) {
  const auto of = [&](std::size_t range) { return e.token_us[range].empty() ? 0.0 : median(e.token_us[range]); };
  Json line = {{"bench", "decode"}, {"model", spec.name}, {"gpu", gpu.product}, {"config", e.name}, {"batch", e.batch}, {"error", e.error}};
  if (e.program)
    line.update({{"registers", e.program->registers()},
                 {"local_bytes", e.program->local_bytes()},
                 {"shared_bytes", e.program->plan().shared_bytes},
                 {"build_ms", e.built.build_ms},
                 {"tasks", e.built.program->tasks.size()}});
  if (e.checked > 0)
    line.update({{"max_abs", e.max_abs}, {"mean_abs", e.mean_abs}, {"agree", e.agree}, {"repeatable", e.repeatable}, {"written", e.written}});
  for (std::size_t r = 1; r < ranges.size(); ++r) line["us_at_" + std::to_string(ranges[r].first)] = of(r);
  const double us = of(0), gbs = us > 0 ? static_cast<double>(spec.decode_weight_bytes()) / us / 1e3 : 0;
  if (us > 0) line.update({{"us_per_token", us}, {"best_us", *std::min_element(e.token_us[0].begin(), e.token_us[0].end())}, {"weights_gbs", gbs}});
  if (us > 0 && read_gbs > 0) line["share_of_read_bandwidth"] = gbs / read_gbs;
  return line;
}

// The fastest batch against the fastest single sequence.
void print_ratio(const std::vector<Entry>& entries, int batch, const GpuDevice& gpu) {
  double best = 0, one = 0;
  for (const Entry& e : entries) {
    if (e.token_us[0].empty() || !e.error.empty()) continue;
    double& fastest = e.batch > 1 ? best : one;
    fastest = fastest == 0 ? median(e.token_us[0]) : std::min(fastest, median(e.token_us[0]));
  }
  if (best > 0 && one > 0)
    print({{"bench", "decode"},
           {"metric", "batch " + std::to_string(batch) + " / batch 1"},
           {"value", best / one},
           {"unit", "ratio"},
           {"us_batch", best},
           {"us_one", one},
           {"gpu", gpu.product}});
}

Status run(const Arguments& args) {
  AMK_TRY(resources, find_resources());
  AMK_TRY(ref, resolve_model(args.text("--model", "llama-3.2-1b"), ModelSources::from_environment(resources.config())));
  const int max_seq = std::min(args.number("--max-seq", "512"), ref.spec.max_position);
  AMK_TRY(ranges, ranges_of(args.text("--positions", "192:320"), max_seq));
  const int fill = args.number("--fill", "0");
  if (fill < 0 || fill % 16 != 0) return bad_field("fill", fill, "0 (every position is decoded) or a multiple of 16");
  AMK_TRY(h200, load_gpu_target("h200", resources.config() / "gpus"));
  const auto local = gpu_devices();
  const GpuTarget target = local ? local_target(local->front(), resources.config() / "gpus") : h200;
  AMK_TRY(entries, read_entries(args.text("--configs", ""), ref, target));
  if (args.has("--build-only")) return build_only(ref.spec, entries, args.text("--build-only", ""), max_seq, args.cache());
  AMK_TRY(gpus, gpu_devices());
  const GpuDevice& gpu = gpus.front();
  if (args.flag("--neighbours", "0")) AMK_CHECK(add_neighbours(entries, ref.spec, target));
  const Watch watch;
  AMK_TRY(weights, load_weights(ref));
  AMK_TRY(model, GpuModel::open(gpu, weights, max_seq, args.cache(), ref.batch));
  build_all(*model, entries);
  watch.note("built");
  load_all(*model, entries);
  watch.note("loaded");
  double read_gbs = 0;
  if (args.flag("--bandwidth", "0")) {
    AMK_TRY(measured, read_bandwidth(gpu, args.cache()));
    read_gbs = measured;
  }
  if (const int tokens = args.number("--check", "0"); tokens > 0)
    AMK_CHECK(check_all(*model, entries, weights, tokens, max_seq, args.flag("--native", "1")));
  watch.note("checked");
  AMK_CHECK(time_all(*model, entries, ranges, args.number("--rounds", "5"), fill, watch, args.real("--seconds", "1e9")));
  watch.note("timed");
  if (args.has("--trace")) trace_all(*model, entries, ranges.back().first, args.number("--traces", "1"), args.text("--trace", ""));
  for (const Entry& e : entries) print(line_of(e, ref.spec, gpu, ranges, read_gbs));
  if (ref.batch > 1) print_ratio(entries, ref.batch, gpu);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const auto args = Arguments::parse(argc, argv);
  const Status status = args ? run(*args) : tl::unexpected<Error>(args.error());
  if (!status) {
    std::fprintf(stderr, "%s\n", to_json(status.error()).dump().c_str());
    return status.error().kind == ErrorKind::Unavailable ? 77 : status.error().kind == ErrorKind::InvalidArgument ? 2 : 3;
  }
  return 0;
}
