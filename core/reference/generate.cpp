#include "core/reference/generate.h"

#include <algorithm>

#include "core/reference/forward.h"

namespace amk {

Status check_generate(const ModelSpec& spec, const GenerateRequest& request) {
  if (request.prompt_ids.empty()) return bad_field("prompt_ids", Json::array(), "at least one token id");
  const auto check_ids = [&](const char* field, const std::vector<int>& ids) -> Status {
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ids[i] < 0 || ids[i] >= spec.vocab)
        return bad_field(std::string(field) + "[" + std::to_string(i) + "]", ids[i],
                         "0 to " + std::to_string(spec.vocab - 1) + ", the vocabulary of " + spec.name);
    return {};
  };
  AMK_CHECK(check_ids("prompt_ids", request.prompt_ids));
  AMK_CHECK(check_ids("stop_ids", request.stop_ids));
  const auto prompt = static_cast<std::int64_t>(request.prompt_ids.size());
  if (prompt > spec.max_position)
    return bad_field("prompt_ids", std::to_string(prompt) + " ids", "at most max_position_embeddings, " + std::to_string(spec.max_position));
  if (request.max_tokens < 0 || prompt + request.max_tokens > spec.max_position)
    return bad_field("max_tokens", request.max_tokens,
                     "0 to " + std::to_string(spec.max_position - prompt) + ": max_position_embeddings, " + std::to_string(spec.max_position) +
                         ", less the prompt's " + std::to_string(prompt));
  return {};
}

Result<Generated> generate(const std::shared_ptr<const Weights>& weights, const GenerateRequest& request) {
  if (weights == nullptr) return fail(ErrorKind::InvalidArgument, "no weights were given");
  AMK_CHECK(check_generate(weights->spec(), request));
  const int prompt = static_cast<int>(request.prompt_ids.size());
  Oracle oracle(weights, prompt + std::max(0, request.max_tokens - 1), request.threads);
  Generated out;
  std::vector<int> ids = request.prompt_ids;
  for (int i = 0; i < static_cast<int>(ids.size()); ++i) {
    const int token = ids[static_cast<std::size_t>(i)];
    AMK_TRY(logits, oracle.step(token));
    ++out.tokens_processed;
    if (request.on_token) AMK_CHECK(request.on_token(i, token, logits));
    if (i + 1 < prompt || request.max_tokens == 0) continue;
    const int next = argmax(logits);
    out.ids.push_back(next);
    out.stopped = std::find(request.stop_ids.begin(), request.stop_ids.end(), next) != request.stop_ids.end();
    if (out.stopped || static_cast<int>(out.ids.size()) == request.max_tokens) break;
    ids.push_back(next);
  }
  return out;
}

}  // namespace amk
