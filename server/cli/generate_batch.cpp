#include "server/cli/generate_batch.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/program/lower.h"
#include "core/reference/generate.h"
#include "core/reference/reference_vm.h"

namespace amk::cli {
namespace {

using Prompts = std::vector<std::vector<int>>;

Result<Prompts> prompts_of(const GenerateOptions& options, const ModelRef& ref) {
  const std::string accepted = "a list of token ids for each of " + std::to_string(ref.batch) + " sequences, separated by semicolons: 1,2,3;4,5;…";
  if (options.prompt || !options.prompt_ids) return bad_field("prompt-ids", nullptr, accepted);
  if (!options.logits.empty()) return bad_field("logits", options.logits, "no file of logits for a batch: decode the sequence alone");
  Prompts prompts;
  const std::string& text = *options.prompt_ids;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(';', at), text.size());
    AMK_TRY(ids, parse_prompt_ids(text.substr(at, end - at)));
    prompts.push_back(std::move(ids));
    at = end + 1;
  }
  if (prompts.size() != static_cast<std::size_t>(ref.batch)) return bad_field("prompt-ids", text, accepted);
  for (const auto& prompt : prompts) {
    GenerateRequest request;
    request.prompt_ids = prompt;
    request.max_tokens = options.max_tokens;
    AMK_CHECK(check_generate(ref.spec, request));
  }
  return prompts;
}

// The prompts through the lowered default program on the reference VM, a token of each sequence a step. Whoever is through repeats its last
// position's place in the queue: its further tokens are dropped.
Result<Prompts> generate_by_vm(const std::shared_ptr<const Weights>& weights, const Prompts& prompts, int max_tokens) {
  constexpr int kSms = 8;
  std::size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  LoweringTarget target;
  target.sm_count = kSms;
  target.smem_optin_bytes = 227 << 10;
  target.max_seq = std::min(weights->spec().max_position, static_cast<int>(longest) + max_tokens);
  target.batch = static_cast<int>(prompts.size());
  NumericFormat format;
  format.weights = weights->spec().dtype;
  AMK_TRY(program, lower(weights->spec(), ScheduleConfig{}, target, format));
  AMK_TRY(vm, ReferenceVm::create(program, weights));
  Prompts ids(prompts.size());
  std::vector<int> tokens;
  for (const auto& prompt : prompts) tokens.push_back(prompt.front());
  const std::size_t steps = max_tokens == 0 ? 0 : longest + static_cast<std::size_t>(max_tokens) - 1;
  for (std::size_t i = 0; i < steps; ++i) {
    AMK_TRY(step, vm.step(tokens));
    for (std::size_t s = 0; s < prompts.size(); ++s) {
      const bool in_prompt = i + 1 < prompts[s].size();
      tokens[s] = in_prompt ? prompts[s][i + 1] : step[s].next_token;
      if (!in_prompt && ids[s].size() < static_cast<std::size_t>(max_tokens)) ids[s].push_back(tokens[s]);
    }
  }
  return ids;
}

}  // namespace

Result<Json> generate_batch(const GenerateOptions& options, const ModelRef& ref, LocalGpu* gpu) {
  AMK_TRY(prompts, prompts_of(options, ref));
  Json out = {{"model", options.model}, {"device", gpu != nullptr ? "cuda" : "cpu"}, {"batch", ref.batch}, {"sequences", Json::array()}};
  std::vector<GpuDecode> made;
  std::shared_ptr<const Weights> weights;
  if (gpu == nullptr || options.verify) {
    AMK_TRY(loaded, load_weights(ref));
    weights = std::move(loaded);
  }
  if (gpu != nullptr) {
    AMK_TRY(canonical, gpu->workload->canonical(options.config));
    AMK_TRY(decoded, gpu->judge->decode(*gpu->workload, canonical, prompts, options.max_tokens, false, {}));
    made = std::move(decoded);
    out["gpu"] = gpu->device.product;
    out["uuid"] = gpu->device.uuid;
    out["schedule_id"] = gpu->workload->schedule_id(canonical);
  } else {
    for (const auto& prompt : prompts) {
      GenerateRequest request;
      request.prompt_ids = prompt;
      request.max_tokens = options.max_tokens;
      AMK_TRY(generated, amk::generate(weights, request));
      made.push_back({generated.ids, generated.tokens_processed, {}});
    }
  }
  Prompts again;
  if (gpu == nullptr && options.verify) {
    AMK_TRY(ids, generate_by_vm(weights, prompts, options.max_tokens));
    again = std::move(ids);
    out["verified_against"] = "the lowered default program on the reference VM, all sequences at once";
  }
  bool verified = true;
  for (std::size_t s = 0; s < prompts.size(); ++s) {
    Json one = {{"prompt_ids", prompts[s]}, {"generated_ids", made[s].ids}, {"tokens_processed", made[s].tokens_processed}};
    if (gpu != nullptr && options.verify) AMK_CHECK(verify_against_oracle(weights, prompts[s], made[s].ids, one));
    if (gpu == nullptr && options.verify) one["verified"] = again[s] == made[s].ids;
    verified = verified && one.value("verified", true);
    out["sequences"].push_back(std::move(one));
  }
  if (options.verify) out["verified"] = verified;
  return out;
}

}  // namespace amk::cli
