#include "server/cli/verbs.h"

#include <charconv>
#include <filesystem>
#include <fstream>

#include "core/base/json.h"
#include "core/base/resources.h"
#include "core/model/load.h"
#include "core/model/tokenizer.h"
#include "core/program/lower.h"
#include "core/reference/forward.h"
#include "core/reference/generate.h"
#include "core/reference/reference_vm.h"
#include "orchestrator/service/local_judge.h"
#include "orchestrator/service/workloads.h"
#include "server/cli/generate_batch.h"
#include "server/cli/gpu_verbs.h"

namespace amk::cli {
namespace {

// The same prompt through the lowered default program on the reference VM: shows that lowering and oracle agree on this checkpoint.
Result<std::vector<int>> generate_by_vm(const std::shared_ptr<const Weights>& weights, const std::vector<int>& prompt, int max_tokens) {
  constexpr int kSms = 8;  // few SMs: the VM is sequential, and placement does not change values
  LoweringTarget target;
  target.sm_count = kSms;
  target.smem_optin_bytes = 227 << 10;
  target.max_seq = std::min(weights->spec().max_position, static_cast<int>(prompt.size()) + max_tokens);
  NumericFormat format;
  format.weights = weights->spec().dtype;
  AMK_TRY(program, lower(weights->spec(), ScheduleConfig{}, target, format));
  AMK_TRY(vm, ReferenceVm::create(program, weights));
  std::vector<int> ids;
  int token = prompt.front();
  for (int i = 0; static_cast<int>(ids.size()) < max_tokens; ++i) {
    AMK_TRY(step, vm.step(token));
    if (i + 1 < static_cast<int>(prompt.size())) {
      token = prompt[static_cast<std::size_t>(i) + 1];
    } else {
      token = step.next_token;
      ids.push_back(token);
    }
  }
  return ids;
}

}  // namespace

Result<std::vector<int>> parse_prompt_ids(const std::string& text) {
  std::vector<int> ids;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    std::string cell = text.substr(at, comma - at);
    while (!cell.empty() && cell.front() == ' ') cell.erase(0, 1);
    while (!cell.empty() && cell.back() == ' ') cell.pop_back();
    int id = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), id);
    if (cell.empty() || error != std::errc() || end != cell.data() + cell.size())
      return bad_field("prompt-ids", cell.empty() ? text : cell, "token ids separated by commas, e.g. 1,2,3");
    ids.push_back(id);
    at = comma + 1;
  }
  return ids;
}

Result<Json> compile(const CompileOptions& options) {
  AMK_TRY(device, device_from(options.device));
  AMK_TRY(resources, find_resources());
  LocalJudge judge({resources.config(),
                    default_cache_folder(),
                    {"/proc/self/exe", "worker", "--cache", default_cache_folder().string()},
                    {}});  // "auto" is the GPU of this machine
  Workloads workloads(resources.config() / "gpus", judge);
  AMK_TRY(opened, workloads.open(options.model, options.gpu, "cpu"));
  AMK_TRY(canonical, opened.workload->canonical(options.config));
  AMK_TRY(artifact, opened.workload->compile(canonical));
  const std::string id = opened.workload->schedule_id(canonical);
  const std::filesystem::path path = options.out.empty() ? std::filesystem::path(id + ".json") : std::filesystem::path(options.out);
  const std::string text = artifact.dump() + "\n";
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.flush();
  if (!out) return fail(ErrorKind::Io, path.string() + ": cannot be written");
  Json done = {{"workload", opened.workload->id()},
               {"gpu", opened.workload->target().name},
               {"schedule_id", id},
               {"config", canonical},
               {"artifact", std::filesystem::absolute(path).string()},
               {"bytes", text.size()}};
  if (device == Device::Cuda) AMK_CHECK(compile_kernel(*opened.workload, canonical, path, done));
  return done;
}

Result<Json> generate(const GenerateOptions& options) {
  AMK_TRY(device, device_from(options.device));
  std::optional<LocalGpu> gpu;
  if (device != Device::Cpu) {
    auto opened = LocalGpu::open(options.model);
    if (opened)
      gpu.emplace(std::move(*opened));
    else if (device == Device::Cuda || opened.error().kind != ErrorKind::Unavailable)
      return tl::unexpected<Error>(std::move(opened).error());
  }
  if (options.prompt_ids.has_value() == options.prompt.has_value())
    return bad_field("prompt", nullptr, "exactly one of --prompt-ids 1,2,3 and --prompt TEXT");
  AMK_TRY(resources, find_resources());
  AMK_TRY(ref, resolve_model(options.model, ModelSources::from_environment(resources.config())));
  if (ref.batch > 1) return generate_batch(options, ref, gpu ? &*gpu : nullptr);

  GenerateRequest request;
  std::optional<Tokenizer> tokenizer;  // text prompts only
  request.max_tokens = options.max_tokens;
  if (options.prompt_ids) {
    AMK_TRY(ids, parse_prompt_ids(*options.prompt_ids));
    request.prompt_ids = std::move(ids);
  } else {
    if (ref.source != ModelRef::Source::Directory)
      return bad_field("prompt", *options.prompt, "--prompt-ids: a catalogue model has no tokenizer; text needs a checkpoint with tokenizer.json");
    AMK_TRY(loaded, Tokenizer::load(ref.directory / "tokenizer.json"));
    AMK_TRY(ids, loaded.encode(*options.prompt));
    tokenizer = std::move(loaded);
    request.prompt_ids = std::move(ids);
  }
  AMK_CHECK(check_generate(ref.spec, request));
  if (gpu) return generate_on_gpu(*gpu, options, request, tokenizer ? &*tokenizer : nullptr);
  AMK_TRY(weights, load_weights(ref));

  std::optional<LogitsFile> logits;
  if (!options.logits.empty()) {
    AMK_TRY(file, LogitsFile::create(options.logits));
    logits = std::move(file);
  }
  request.on_token = [&](int, int, std::span<const float> row) -> Status { return logits ? logits->append(row) : Status{}; };
  AMK_TRY(generated, amk::generate(weights, request));
  if (logits) AMK_CHECK(logits->finish());

  Json out = {{"model", options.model},
              {"device", "cpu"},
              {"prompt_ids", request.prompt_ids},
              {"generated_ids", generated.ids},
              {"tokens_processed", generated.tokens_processed}};
  if (!options.logits.empty()) out["logits"] = std::filesystem::absolute(options.logits).string();
  if (tokenizer) {
    AMK_TRY(text, tokenizer->decode(generated.ids));
    out["text"] = text;
  }
  if (options.verify) {
    AMK_TRY(again, generate_by_vm(weights, request.prompt_ids, options.max_tokens));
    out["verified"] = again == generated.ids;
    out["verified_against"] = "the lowered default program on the reference VM";
  }
  return out;
}

}  // namespace amk::cli
