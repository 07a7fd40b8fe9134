#include "server/cli/gpu_verbs.h"

#include <cmath>
#include <fstream>

#include "core/base/json.h"
#include "core/base/resources.h"
#include "core/model/load.h"
#include "core/reference/forward.h"
#include "core/reference/native.h"
#include "kernels/evaluator/gpu_report.h"
#include "kernels/megakernel/trace_report.h"
#include "kernels/worker.h"
#include "orchestrator/service/local_judge.h"

namespace amk::cli {
namespace {

Status write_whole(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.flush();
  if (!out) return fail(ErrorKind::Io, path.string() + ": cannot be written");
  return {};
}

}  // namespace

Status verify_against_oracle(const std::shared_ptr<const Weights>& weights, const std::vector<int>& prompt, const std::vector<int>& ids, Json& out) {
  const int total = static_cast<int>(prompt.size() + ids.size()) - 1;
  Oracle oracle(weights, total);
  NativeForward native(weights, total);
  double worst_native = 0;
  struct Tie {
    std::size_t index;
    int oracle_id, gpu_id;
    double margin;
  };
  std::vector<Tie> ties;
  for (int i = 0; i < total; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const int token = at < prompt.size() ? prompt[at] : ids[at - prompt.size()];
    AMK_TRY(expected, oracle.step(token));
    AMK_TRY(low, native.step(token));
    for (std::size_t j = 0; j < expected.size(); ++j) worst_native = std::max(worst_native, std::abs(static_cast<double>(low[j]) - expected[j]));
    if (at + 1 < prompt.size()) continue;
    const std::size_t index = at + 1 - prompt.size();
    const int best = argmax(expected);
    if (best != ids[index])
      ties.push_back(
          {index, best, ids[index], static_cast<double>(expected[static_cast<std::size_t>(best)]) - expected[static_cast<std::size_t>(ids[index])]});
  }
  const double bound = 2 * kGateMargin * worst_native;
  bool verified = true;
  Json rows = Json::array();
  for (const Tie& t : ties) {
    verified = verified && t.margin <= bound;
    rows.push_back({{"index", t.index}, {"oracle_id", t.oracle_id}, {"gpu_id", t.gpu_id}, {"oracle_margin", t.margin}});
  }
  out["verified"] = verified;
  out["verified_against"] = "the fp32 oracle on the CPU, behind the same prefix";
  out["ids_equal"] = ties.empty();
  if (!ties.empty()) out["differences"] = {{"tie_bound", bound}, {"at", std::move(rows)}};
  return {};
}

Result<LocalGpu> LocalGpu::open(const std::string& model) {
  AMK_TRY(resources, find_resources());
  AMK_TRY(gpus, gpu_devices());
  AMK_TRY(nvrtc, Nvrtc::open());
  (void)nvrtc;
  LocalGpu out;
  out.device = gpus.front();
  if (out.device.sm_major < 8 || !out.device.cooperative_launch)
    return fail(ErrorKind::Unavailable, out.device.product + " is older than compute capability 8.0; accepted: cpu");
  AMK_TRY(ref, resolve_model(model, ModelSources::from_environment(resources.config())));
  AMK_TRY(workload, MegakernelWorkload::create(ref, local_target(out.device, resources.config() / "gpus")));
  out.workload = std::move(workload);
  DeviceJudgeOptions options;
  options.config_dir = resources.config();
  options.cache_folder = default_cache_folder() / "kernels";
  std::error_code code;
  std::filesystem::create_directories(options.cache_folder, code);
  out.link = make_process_link({"/proc/self/exe", "worker", "--cache", default_cache_folder().string()});
  out.judge = std::make_unique<GpuJudge>(out.device, options, *out.link);
  return out;
}

Result<Json> generate_on_gpu(LocalGpu& gpu, const GenerateOptions& options, const GenerateRequest& request, const Tokenizer* tokenizer) {
  AMK_TRY(canonical, gpu.workload->canonical(options.config));
  const int max_seq = gpu.workload->lowering_target().max_seq;
  const int tokens = static_cast<int>(request.prompt_ids.size()) + request.max_tokens - 1;
  if (tokens > max_seq)
    return bad_field("max-tokens", request.max_tokens,
                     "prompt and generated tokens within the " + std::to_string(max_seq) + " positions of the schedule");
  AMK_TRY(made, gpu.judge->decode(*gpu.workload, canonical, request.prompt_ids, request.max_tokens, !options.logits.empty(), {}));
  Json out = {{"model", options.model},
              {"device", "cuda"},
              {"gpu", gpu.device.product},
              {"uuid", gpu.device.uuid},
              {"schedule_id", gpu.workload->schedule_id(canonical)},
              {"prompt_ids", request.prompt_ids},
              {"generated_ids", made.ids},
              {"tokens_processed", made.tokens_processed}};
  if (!options.logits.empty()) {
    AMK_TRY(file, LogitsFile::create(options.logits));
    const auto vocab = static_cast<std::size_t>(gpu.workload->model().spec.vocab);
    for (std::size_t row = 0; row + vocab <= made.logits.size(); row += vocab) AMK_CHECK(file.append({made.logits.data() + row, vocab}));
    AMK_CHECK(file.finish());
    out["logits"] = std::filesystem::absolute(options.logits).string();
  }
  if (tokenizer != nullptr) {
    AMK_TRY(text, tokenizer->decode(made.ids));
    out["text"] = text;
  }
  if (options.verify) {
    AMK_TRY(weights, load_weights(gpu.workload->model()));
    AMK_CHECK(verify_against_oracle(weights, request.prompt_ids, made.ids, out));
  }
  return out;
}

Status compile_kernel(const Workload& workload, const Json& canonical, const std::filesystem::path& artifact, Json& done) {
  const auto* alone = dynamic_cast<const InstructionWorkload*>(&workload);
  const auto* mine = alone != nullptr ? &alone->model() : dynamic_cast<const MegakernelWorkload*>(&workload);
  if (mine == nullptr)
    return bad_field("device", "cuda", "cpu, for " + workload.id() + ": its plan names the kernel; amk builds it when it is judged");
  PlanOptions options;
  if (alone != nullptr) options.instruction = alone->op();
  options.batch = mine->batch();
  AMK_TRY(config, mine->parse(canonical));
  AMK_TRY(compiler, NvrtcCompiler::open());
  const auto cache_folder = default_cache_folder() / "kernels";
  std::error_code code;
  std::filesystem::create_directories(cache_folder, code);
  AMK_TRY(cache, BuildCache::open(cache_folder));
  AMK_TRY(built, build_candidate(mine->model().spec, config, limits_of(mine->target()), mine->lowering_target().max_seq, compiler, cache, options));
  const std::filesystem::path cubin = artifact.string() + ".cubin";
  AMK_CHECK(write_whole(cubin, {reinterpret_cast<const char*>(built.kernel.cubin.data()), built.kernel.cubin.size()}));
  done["cubin"] = {{"path", std::filesystem::absolute(cubin).string()},
                   {"bytes", built.kernel.cubin.size()},
                   {"architecture", built.plan.request.architecture},
                   {"kernel", "amk_megakernel"},
                   {"grid", built.plan.grid},
                   {"threads", built.plan.threads},
                   {"smem_bytes", built.plan.shared_bytes},
                   {"build_ms", built.build_ms},
                   {"cached", built.cached}};
  return {};
}

Result<Json> trace(const TraceOptions& options, const std::filesystem::path& workspace) {
  AMK_TRY(gpu, LocalGpu::open(options.model));
  AMK_TRY(canonical, gpu.workload->canonical(options.config));
  AMK_TRY(traced, gpu.judge->trace(*gpu.workload, canonical, options.position, {}));
  AMK_TRY(token, read_trace(*traced.built.program, traced.built.plan, traced.marks));
  const std::string id = gpu.workload->schedule_id(canonical);
  const std::filesystem::path path = options.out.empty() ? workspace / "traces" / (id + ".json") : std::filesystem::path(options.out);
  std::error_code code;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), code);
  AMK_CHECK(write_whole(path, chrome_trace(*traced.built.program, token).dump()));
  Json out = summarize_trace(*traced.built.program, token);
  out["model"] = gpu.workload->id();
  out["gpu"] = gpu.device.product;
  out["schedule_id"] = id;
  out["position"] = options.position;
  out["trace"] = std::filesystem::absolute(path).string();
  return out;
}

}  // namespace amk::cli
