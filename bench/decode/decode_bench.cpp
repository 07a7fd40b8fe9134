// Decode on the local GPU: milliseconds per token of any number of configs, in turn, after a check against the oracle.
// bench_decode --model llama-3.2-1b [--configs FILE] [--check TOKENS] [--positions 192:320[,8128:8256…]] [--rounds 5] [--max-seq 512] [--cache DIR]
// [--trace FILE] [--fill ROWS]
//              [--neighbours 1] [--seconds S] [--build-only sm_90a]
// FILE: one JSON object a line, {"name": …, "config": {…}, "batch": …, "launch": steps of a launch while timed,
// "ring_from": rows of a split from which kv_path ring takes the ring, "staged": at most so many cache rows of attention_o in shared memory at a
// time, "trace": whether --trace takes it (where no line says so, it takes all)}.
// --fill ROWS (a multiple of 16): only so many positions are decoded before those that are timed, what the cache lacks is these rows again: contexts
// that would take longer to decode than to time.
// --neighbours 1: besides the first config, each of its knobs moved alone to each other value (an ablation). --seconds: no round begins later than
// that after the start, so that what was timed is printed. Prints one JSON object a line. MODEL@b8: every config is built for eight sequences a
// launch and for one, unless its "batch" says which; a checked batch must give each sequence the bits that it has alone; the last line is the ratio
// of the fastest batch to the fastest single sequence, timed in turn in this run.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>

#include "core/base/parse_json.h"
#include "core/base/random.h"
#include "core/base/resources.h"
#include "core/base/stats.h"
#include "core/model/load.h"
#include "core/reference/forward.h"
#include "core/reference/native.h"
#include "kernels/evaluator/gpu_report.h"
#include "kernels/evaluator/nvml.h"
#include "kernels/megakernel/checked_run.h"
#include "kernels/megakernel/gpu_model.h"
#include "kernels/megakernel/workload.h"

using namespace amk;

namespace {

struct Entry {
  std::string name;
  ScheduleConfig config;
  int batch = 1;
  int launch = 0;     // steps of a launch; 0: as many as the program has
  int ring_from = 0;  // PlanOptions::cache_ring_from
  bool traced = false;
  int staged = 0;  // PlanOptions::staged_rows
  BuiltCandidate built;
  std::unique_ptr<DeviceProgram> program;
  std::string error;
  double max_abs = 0, mean_abs = 0;
  int agree = 0, checked = 0;
  bool repeatable = true, written = true;
  std::vector<std::vector<double>> token_us;  // of each range of positions
};

void print(const Json& line) { std::cout << line.dump() << std::endl; }

struct Reference {
  std::vector<int> tokens;
  std::vector<std::vector<float>> oracle;
  double native_max = 0, native_mean = 0;
  int native_agree = 0;
};

Result<Reference> make_reference(const std::shared_ptr<const Weights>& weights, int tokens, int max_seq, bool native) {
  Reference r;
  Rng rng(12345);
  Oracle oracle(weights, max_seq);
  NativeForward low(weights, max_seq);
  double sum = 0;
  for (int i = 0; i < tokens; ++i) {
    r.tokens.push_back(static_cast<int>(rng.below(static_cast<std::uint64_t>(weights->spec().vocab))));
    AMK_TRY(logits, oracle.step(r.tokens.back()));
    r.oracle.emplace_back(logits.begin(), logits.end());
    if (!native) continue;
    AMK_TRY(low_logits, low.step(r.tokens.back()));
    for (std::size_t j = 0; j < low_logits.size(); ++j) {
      const double e = std::abs(low_logits[j] - logits[j]);
      r.native_max = std::max(r.native_max, e);
      sum += e;
    }
    r.native_agree += argmax(low_logits) == argmax(logits) ? 1 : 0;
  }
  r.native_mean = sum / std::max(1, tokens) / weights->spec().vocab;
  return r;
}

Status check(GpuModel& model, Entry& e, const Reference& reference) {
  const auto& seq = model.sequence();
  const auto& stream = model.stream();
  AMK_CHECK(seq.set_tokens(reference.tokens, 0, stream));
  std::vector<std::vector<float>> first;
  double sum = 0;
  for (int turn = 0; turn < 2; ++turn) {
    AMK_CHECK(seq.poison_kv(stream));
    StepOptions options;
    const std::size_t in_launch = static_cast<std::size_t>(e.program->plan().steps), count = reference.tokens.size();
    for (std::size_t i = 0; i < count; ++i) {
      const int row = static_cast<int>(i % in_launch);
      if (row == 0) {
        AMK_CHECK(seq.poison_outputs(stream));
        AMK_CHECK(e.program->poison_activations(stream));
        options.position = static_cast<int>(i);
        options.steps = static_cast<int>(std::min(in_launch, count - i));
        AMK_CHECK(model.run(*e.program, options));
      }
      AMK_TRY(logits, seq.read_logits(stream, 0, row));
      AMK_TRY(next, seq.read_next_token(stream, 0, row));
      if (turn == 1) {
        if (std::memcmp(logits.data(), first[i].data(), logits.size() * 4) != 0) e.repeatable = false;
        continue;
      }
      for (std::size_t j = 0; j < logits.size(); ++j) {
        if (!std::isfinite(logits[j])) e.written = false;
        const double err = std::isfinite(logits[j]) ? std::abs(logits[j] - reference.oracle[i][j]) : 1e30;
        e.max_abs = std::max(e.max_abs, err);
        sum += err;
      }
      if (next != argmax(logits)) e.written = false;
      e.agree += next == argmax(reference.oracle[i]) ? 1 : 0;
      ++e.checked;
      first.push_back(std::move(logits));
    }
  }
  e.mean_abs = sum / std::max(1, e.checked) / model.spec().vocab;
  AMK_TRY(damage, seq.damaged_guards(stream));
  AMK_TRY(damage2, e.program->damaged_guards(stream));
  if (damage + damage2 != 0) e.error = "guard bytes damaged: " + std::to_string(damage + damage2);
  return {};
}

// Every sequence of a batch, at positions of its own, against what the same config's program of one sequence makes of it.
Status check_batch(GpuModel& model, Entry& e, Entry* alone, int tokens) {
  std::vector<SequenceRun> sequences;
  for (int s = 0; s < e.batch; ++s) {
    Rng rng(777 + static_cast<std::uint64_t>(s));
    SequenceRun& run = sequences.emplace_back();
    for (int i = 0; i < tokens; ++i) run.tokens.push_back(static_cast<int>(rng.below(static_cast<std::uint64_t>(model.spec().vocab))));
    run.delay = 5 * s;
  }
  AMK_TRY(first, run_checked_batch(model, *e.program, sequences));
  AMK_TRY(second, run_checked_batch(model, *e.program, sequences));
  e.repeatable = first.steady && second.steady;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    e.repeatable = e.repeatable && first.sequences[s].hashes == second.sequences[s].hashes;
    e.written = e.written && first.sequences[s].unwritten == 0 && first.sequences[s].not_finite == 0;
    if (alone == nullptr || !alone->program) continue;
    AMK_TRY(single, run_checked(model, *alone->program, sequences[s].tokens, {}, static_cast<int>(s)));
    for (std::size_t p = 0; p < single.hashes.size(); ++p) e.agree += single.hashes[p] == first.sequences[s].hashes[p] ? 1 : 0;
    e.checked += static_cast<int>(single.hashes.size());
  }
  AMK_TRY(damage, model.sequence().damaged_guards(model.stream()));
  AMK_TRY(more, e.program->damaged_guards(model.stream()));
  if (damage + more != 0) e.error = "guard bytes damaged: " + std::to_string(damage + more);
  if (e.agree != e.checked) e.error = "a sequence of the batch has not the bits that it has alone";
  return {};
}

Result<double> time_tokens(GpuModel& model, Entry& e, int first, int last) {
  AMK_TRY(start, cuda::Event::create());
  AMK_TRY(end, cuda::Event::create());
  AMK_CHECK(start.record(model.stream()));
  StepOptions options;
  options.feed_back = true;
  for (int p = first; p < last; p += options.steps) {
    options.position = p;
    options.steps = std::min(e.launch > 0 ? std::min(e.launch, e.program->plan().steps) : e.program->plan().steps, last - p);
    AMK_CHECK(model.enqueue(*e.program, options));
  }
  AMK_CHECK(end.record(model.stream()));
  AMK_CHECK(e.program->check(model.stream()));
  AMK_TRY(us, cuda::Event::elapsed_us(start, end));
  return us / (last - first);
}

// The cache's rows [0, rows) again and again, up to `end`. Multiples of 16, so that the order of a row's pieces is its own.
Status repeat_rows(GpuModel& model, int rows, int end) {
  const auto& seq = model.sequence();
  const ModelSpec& spec = model.spec();
  const std::uint64_t of_cache = static_cast<std::uint64_t>(seq.max_seq()), caches = static_cast<std::uint64_t>(2 * spec.layers * spec.kv_heads);
  for (int s = 0; s < seq.batch(); ++s) {
    const std::uint64_t row = (seq.kv(s + 1) - seq.kv(s)) / (caches * of_cache);
    for (std::uint64_t c = 0; c < caches; ++c) {
      const cuda::DevicePtr first = seq.kv(s) + c * of_cache * row;
      for (int have = rows; have < end;) {
        const int more = std::min(have, end - have);
        AMK_CHECK(
            cuda::copy_on_device(first + static_cast<std::uint64_t>(have) * row, first, static_cast<std::uint64_t>(more) * row, model.stream()));
        have += more;
      }
    }
  }
  return model.stream().synchronize();
}

Result<std::vector<Entry>> read_entries(const std::string& path, const ModelRef& ref, const GpuTarget& target) {
  std::vector<Entry> entries;
  if (path.empty()) {  // the default that fits, of each size of batch
    std::vector<int> sizes{ref.batch};
    if (ref.batch > 1) sizes.push_back(1);
    for (const int batch : sizes) {
      ModelRef of = ref;
      of.batch = batch;
      AMK_TRY(workload, MegakernelWorkload::create(of, target));
      AMK_TRY(config, workload->parse(workload->default_config()));
      Entry& e = entries.emplace_back();
      e.name = batch == 1 ? "default" : "default, batch " + std::to_string(batch);
      e.config = config;
      e.batch = batch;
    }
    return entries;
  }
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty() || line[0] == '#') continue;
    AMK_TRY(json, parse_json(line, path));
    AMK_TRY(config, parse_schedule_config(json.at("config")));
    Entry e;
    e.name = json.value("name", "");
    e.config = config;
    e.batch = json.value("batch", ref.batch);
    e.launch = json.value("launch", 0);
    e.ring_from = json.value("ring_from", 0);
    e.traced = json.value("trace", false);
    e.staged = json.value("staged", 0);
    if (e.batch != 1 && e.batch != ref.batch) return bad_field("batch", e.batch, "1 or " + std::to_string(ref.batch));
    const bool both = ref.batch > 1 && !json.contains("batch");
    entries.push_back(std::move(e));
    if (!both) continue;
    Entry& one = entries.emplace_back();
    one.name = json.value("name", "") + ", one sequence";
    one.config = config;
  }
  return entries;
}

// `base` and every config that differs from it in one knob and that the space allows.
Status add_neighbours(std::vector<Entry>& entries, const ModelSpec& spec, const GpuTarget& target) {
  const int batch = entries.front().batch;
  const SearchSpace space = megakernel_space(spec, target, batch, Choices::All);
  AMK_TRY(base, point_of(space, entries.front().config));
  for (std::size_t k = 0; k < space.knobs.size(); ++k) {
    for (std::size_t c = 0; c < space.knobs[k].choices.size(); ++c) {
      if (c == base[k]) continue;
      Point moved = base;
      moved[k] = static_cast<std::uint16_t>(c);
      if (space.violated(moved) != nullptr) continue;
      Entry e;
      e.name = space.knobs[k].name + " = " + space.knobs[k].choices[c].dump();
      e.config = config_at(space, moved);
      e.batch = batch;
      entries.push_back(std::move(e));
    }
  }
  return {};
}

// Where a token's time goes, from one traced step: per kind of task, medians over tasks of each phase, in ns.
Status trace(GpuModel& model, const Entry& e, int position, const std::string& path) {
  PlanOptions options;
  options.trace = true;
  options.batch = e.batch;
  options.cache_ring_from = e.ring_from;
  options.staged_rows = e.staged;
  AMK_TRY(built, model.build(e.config, options));
  AMK_TRY(program, model.load(built));
  for (int i = 0; i < 3; ++i) AMK_CHECK(model.run(program, {position, false}));
  std::vector<std::uint64_t> marks;
  AMK_CHECK(program.read_trace(marks, model.stream()));
  const auto& plan = program.plan();
  std::size_t longest = 0;
  for (const auto& q : plan.queues) longest = std::max<std::size_t>(longest, q.task_count);
  std::ofstream out(path);
  out << "sm\ttask\tname";
  for (int m = 0; m < amk_vm::kTraceMarks; ++m) out << "\tt" << m;
  out << "\n";
  std::uint64_t zero = ~0ull;
  for (const auto t : marks)
    if (t != 0) zero = std::min(zero, t);
  for (std::size_t sm = 0; sm < plan.queues.size(); ++sm) {
    for (std::size_t i = 0; i < plan.queues[sm].task_count; ++i) {
      out << sm << "\t" << i << "\t" << task_name(*built.program, plan.task_ids[sm][i]);
      for (int m = 0; m < amk_vm::kTraceMarks; ++m) {
        const auto t = marks[(sm * longest + i) * amk_vm::kTraceMarks + static_cast<std::size_t>(m)];
        out << "\t" << (t == 0 ? -1 : static_cast<std::int64_t>(t - zero));
      }
      out << "\n";
    }
  }
  return {};
}

// Fills the build cache on a machine without a GPU; the limits are those of an H200 unless the architecture says otherwise.
Status build_only(const ModelSpec& spec, const std::vector<Entry>& entries, const std::string& architecture, int max_seq, const std::string& folder) {
  DeviceLimits limits{architecture, std::atoi(architecture.c_str() + 3) / 10, 132, 232448, 1024};
  AMK_TRY(compiler, NvrtcCompiler::open());
  AMK_TRY(cache, BuildCache::open(folder));
  for (const Entry& e : entries) {
    PlanOptions options;
    options.batch = e.batch;
    options.cache_ring_from = e.ring_from;
    options.staged_rows = e.staged;
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

Status run(std::map<std::string, std::string> args) {
  const auto arg = [&](const char* name, const char* fallback) {
    const auto it = args.find(name);
    return it == args.end() ? std::string(fallback) : it->second;
  };
  AMK_TRY(resources, find_resources());
  AMK_TRY(ref, resolve_model(arg("--model", "llama-3.2-1b"), ModelSources::from_environment(resources.config())));
  const int max_seq = std::min(std::atoi(arg("--max-seq", "512").c_str()), ref.spec.max_position);
  AMK_TRY(h200, load_gpu_target("h200", resources.config() / "gpus"));
  const auto local = gpu_devices();
  const GpuTarget target = local ? local_target(local->front(), resources.config() / "gpus") : h200;
  AMK_TRY(entries, read_entries(arg("--configs", ""), ref, target));
  if (args.count("--build-only") != 0) return build_only(ref.spec, entries, arg("--build-only", ""), max_seq, arg("--cache", "/tmp/amk-cubins"));
  AMK_TRY(gpus, gpu_devices());
  const GpuDevice& gpu = gpus.front();
  if (arg("--neighbours", "0") == "1") AMK_CHECK(add_neighbours(entries, ref.spec, local_target(gpu, resources.config() / "gpus")));
  const auto started = std::chrono::steady_clock::now();
  AMK_TRY(weights, load_weights(ref));
  AMK_TRY(model, GpuModel::open(gpu, weights, max_seq, arg("--cache", "/tmp/amk-cubins"), ref.batch));
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count(); };
  const auto note = [&](const char* what) { std::fprintf(stderr, "[%.1f s] %s\n", seconds(), what); };
  std::vector<Result<BuiltCandidate>> builds(entries.size(), Result<BuiltCandidate>());
  {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < entries.size(); ++i)
      threads.emplace_back([&, i] {
        PlanOptions options;
        options.batch = entries[i].batch;
        options.cache_ring_from = entries[i].ring_from;
        options.staged_rows = entries[i].staged;
        builds[i] = model->build(entries[i].config, options);
      });
    for (auto& t : threads) t.join();
  }
  note("built");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Entry& e = entries[i];
    auto& built = builds[i];
    if (!built) {
      e.error = built.error().message + (built.error().data.contains("log") ? "\n" + built.error().data["log"].get<std::string>() : "");
      continue;
    }
    e.built = std::move(*built);
    auto program = model->load(e.built);
    if (!program) {
      e.error = program.error().message;
      continue;
    }
    e.program = std::make_unique<DeviceProgram>(std::move(*program));
  }
  note("loaded");
  double read_gbs = 0;
  if (arg("--bandwidth", "0") == "1") {
    AMK_TRY(compiler, NvrtcCompiler::open());
    AMK_TRY(cache, BuildCache::open(arg("--cache", "/tmp/amk-cubins")));
    AMK_TRY(measured, measure_read_bandwidth(gpu, compiler, cache));
    read_gbs = measured;
    print({{"bench", "decode"}, {"metric", "read_bandwidth"}, {"value", read_gbs}, {"unit", "GB/s"}, {"gpu", gpu.product}});
  }
  Reference reference;
  if (const int tokens = std::atoi(arg("--check", "0").c_str()); tokens > 0) {
    AMK_TRY(made, make_reference(weights, tokens, max_seq, arg("--native", "1") == "1"));
    reference = std::move(made);
    note("reference made");
    print({{"model", ref.spec.name},
           {"native_max_abs", reference.native_max},
           {"native_mean_abs", reference.native_mean},
           {"native_agree", reference.native_agree},
           {"of", tokens}});
    for (Entry& e : entries) {
      if (!e.program) continue;
      Entry* alone = nullptr;
      for (Entry& other : entries)
        if (other.batch == 1 && schedule_id(other.config) == schedule_id(e.config)) alone = &other;
      const Status s = e.batch > 1 ? check_batch(*model, e, alone, tokens) : check(*model, e, reference);
      if (!s) e.error = s.error().message;
    }
  }
  note("checked");
  std::vector<std::pair<int, int>> ranges;
  std::istringstream positions(arg("--positions", "192:320"));
  for (std::string range; std::getline(positions, range, ',');) {
    const int from = std::atoi(range.c_str()), to = std::atoi(range.substr(range.find(':') + 1).c_str());
    if (from < 0 || to <= from || to > max_seq) return bad_field("positions", range, "FIRST:LAST within --max-seq " + std::to_string(max_seq));
    ranges.emplace_back(from, to);
  }
  const int fill = std::atoi(arg("--fill", "0").c_str());
  if (fill < 0 || fill % 16 != 0) return bad_field("fill", fill, "0 (every position is decoded) or a multiple of 16");
  for (Entry& e : entries) e.token_us.resize(ranges.size());
  const int rounds = std::atoi(arg("--rounds", "5").c_str());
  const double until = std::atof(arg("--seconds", "1e9").c_str());
  for (std::size_t r = 0; rounds > 0 && r < ranges.size(); ++r) {
    const auto [first, last] = ranges[r];
    // A finite cache behind the timed positions.
    for (Entry& e : entries) {
      if (!e.program || !e.error.empty()) continue;
      for (int s = 0; s < ref.batch; ++s) AMK_CHECK(model->sequence().set_tokens(std::vector<int>{1}, 0, model->stream(), s));
      const int from = r == 0 ? 0 : std::min(first, ranges[r - 1].second), until_row = fill > 0 ? std::min(fill, first) : first;
      if (from < until_row) {
        if (auto us = time_tokens(*model, e, from, until_row); !us) e.error = us.error().message;
      }
      if (until_row < first) AMK_CHECK(repeat_rows(*model, until_row, first));
      if (e.batch == ref.batch) break;
    }
    for (int round = 0; round < rounds && (round == 0 || seconds() < until); ++round) {
      for (Entry& e : entries) {
        if (!e.program || !e.error.empty()) continue;
        auto us = time_tokens(*model, e, first, last);
        if (us)
          e.token_us[r].push_back(*us);
        else
          e.error = us.error().message;
      }
    }
  }
  note("timed");
  const int first = ranges.back().first;
  if (const std::string path = arg("--trace", ""); !path.empty()) {
    int n = 0;
    const bool some = std::any_of(entries.begin(), entries.end(), [](const Entry& e) { return e.traced; });
    for (const Entry& e : entries) {
      if (!e.program || !e.error.empty() || (some && !e.traced)) continue;
      if (const Status s = trace(*model, e, first, path + "." + std::to_string(n++) + ".tsv"); !s)
        std::fprintf(stderr, "trace: %s\n", s.error().message.c_str());
    }
  }
  const double bytes = static_cast<double>(ref.spec.decode_weight_bytes());
  for (Entry& e : entries) {
    const auto of = [&](std::size_t range) { return e.token_us[range].empty() ? 0.0 : median(e.token_us[range]); };
    const double us = of(0);
    Json line = {{"bench", "decode"}, {"model", ref.spec.name}, {"gpu", gpu.product}, {"config", e.name}, {"batch", e.batch}, {"error", e.error}};
    if (e.program) {
      line["registers"] = e.program->registers();
      line["local_bytes"] = e.program->local_bytes();
      line["shared_bytes"] = e.program->plan().shared_bytes;
      line["build_ms"] = e.built.build_ms;
      line["tasks"] = e.built.program->tasks.size();
    }
    if (e.checked > 0)
      line.update({{"max_abs", e.max_abs}, {"mean_abs", e.mean_abs}, {"agree", e.agree}, {"repeatable", e.repeatable}, {"written", e.written}});
    if (us > 0)
      line.update(
          {{"us_per_token", us}, {"best_us", *std::min_element(e.token_us[0].begin(), e.token_us[0].end())}, {"weights_gbs", bytes / us / 1e3}});
    for (std::size_t r = 1; r < ranges.size(); ++r) line["us_at_" + std::to_string(ranges[r].first)] = of(r);
    if (us > 0 && read_gbs > 0) line["share_of_read_bandwidth"] = bytes / us / 1e3 / read_gbs;
    print(line);
  }
  if (ref.batch > 1) {
    double best = 0, one = 0;
    for (const Entry& e : entries) {
      if (e.token_us[0].empty() || !e.error.empty()) continue;
      double& fastest = e.batch > 1 ? best : one;
      fastest = fastest == 0 ? median(e.token_us[0]) : std::min(fastest, median(e.token_us[0]));
    }
    if (best > 0 && one > 0)
      print({{"bench", "decode"},
             {"metric", "batch " + std::to_string(ref.batch) + " / batch 1"},
             {"value", best / one},
             {"unit", "ratio"},
             {"us_batch", best},
             {"us_one", one},
             {"gpu", gpu.product}});
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> args;
  for (int i = 1; i + 1 < argc; i += 2) args[argv[i]] = argv[i + 1];
  const Status status = run(std::move(args));
  if (!status) {
    std::fprintf(stderr, "%s\n", to_json(status.error()).dump().c_str());
    return status.error().kind == ErrorKind::Unavailable ? 77 : 3;
  }
  return 0;
}
