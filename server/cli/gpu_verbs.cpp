#include "server/cli/gpu_verbs.h"

#include <cmath>
#include <fstream>

#include "core/base/json.h"
#include "core/base/resources.h"
#include "core/model/load.h"
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

// Where two greedy decodes part, and how close the oracle's call was: the distance of its two best logits there, over their standard deviation.
Json first_difference(const std::vector<int>& oracle, const std::vector<int>& gpu, const std::vector<std::vector<float>>& oracle_logits) {
  std::size_t at = 0;
  while (at < oracle.size() && oracle[at] == gpu[at]) ++at;
  const std::vector<float>& logits = oracle_logits[at];
  double mean = 0, squares = 0;
  for (const float v : logits) mean += v;
  mean /= static_cast<double>(logits.size());
  for (const float v : logits) squares += (v - mean) * (v - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(logits.size()));
  const double margin = logits[static_cast<std::size_t>(oracle[at])] - logits[static_cast<std::size_t>(gpu[at])];
  return {{"index", at},
          {"oracle_id", oracle[at]},
          {"gpu_id", gpu[at]},
          {"oracle_margin", margin},
          {"margin_over_std", deviation > 0 ? margin / deviation : 0}};
}

}  // namespace

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
  out.link = make_process_link({"/proc/self/exe", "worker"});
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
    GenerateRequest again = request;
    std::vector<std::vector<float>> rows;  // of the steps that generate
    int step = 0;
    again.on_token = [&](int, int, std::span<const float> row) -> Status {
      if (++step >= static_cast<int>(request.prompt_ids.size())) rows.emplace_back(row.begin(), row.end());
      return {};
    };
    AMK_TRY(oracle, amk::generate(weights, again));
    out["verified"] = oracle.ids == made.ids;
    out["verified_against"] = "the fp32 oracle on the CPU";
    if (oracle.ids != made.ids) out["first_difference"] = first_difference(oracle.ids, made.ids, rows);
  }
  return out;
}

Status compile_kernel(const Workload& workload, const Json& canonical, const std::filesystem::path& artifact, Json& done) {
  const auto* mine = dynamic_cast<const MegakernelWorkload*>(&workload);
  if (mine == nullptr)
    return bad_field("device", "cuda", "cpu, for " + workload.id() + ": its plan names the kernel; amk builds it when it is judged");
  AMK_TRY(config, mine->parse(canonical));
  AMK_TRY(compiler, NvrtcCompiler::open());
  const auto cache_folder = default_cache_folder() / "kernels";
  std::error_code code;
  std::filesystem::create_directories(cache_folder, code);
  AMK_TRY(cache, BuildCache::open(cache_folder));
  AMK_TRY(built, build_candidate(mine->model().spec, config, limits_of(mine->target()), mine->lowering_target().max_seq, compiler, cache));
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
