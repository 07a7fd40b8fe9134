#include "kernels/megakernel/gpu_question.h"

#include <algorithm>
#include <exception>
#include <random>
#include <thread>

#include "core/base/unexpected.h"
#include "core/target/cost_model.h"
#include "kernels/megakernel/gpu_layout.h"
#include "kernels/megakernel/logit_distance.h"

namespace amk {
namespace {

constexpr int kColdFactor = 4;  // weights below this many L2s are flushed between samples

std::uint64_t fresh_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

constexpr int kDelay = 5;  // steps between the beginnings of a batch's sequences: their positions differ, also across the edges of KV blocks

// What is right for the tokens of one judgement, found on a thread of its own. Ends when that has ended.
class Answers {
 public:
  Answers(std::vector<std::shared_ptr<GpuOracle>> oracles, std::vector<std::vector<int>> tokens)
      : oracles_(std::move(oracles)), tokens_(std::move(tokens)) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::exception&) {  // no thread to be had
      run();
    }
  }
  ~Answers() {
    if (thread_.joinable()) thread_.join();
  }
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;

  Result<std::vector<std::shared_ptr<const GpuReference>>> wait() {
    if (thread_.joinable()) thread_.join();
    AMK_CHECK(done_);
    return found_;
  }

 private:
  void run() try {
    for (std::size_t s = 0; s < oracles_.size() && done_; ++s) {
      auto one = oracles_[s]->answer(std::move(tokens_[s]));
      if (one) found_.push_back(std::move(*one));
      if (!one) done_ = tl::unexpected<Error>(std::move(one).error());
    }
  } catch (const std::exception& e) {  // no memory: nothing may leave a thread
    done_ = unexpected_failure("the oracle", e);
  }
  std::vector<std::shared_ptr<GpuOracle>> oracles_;
  std::vector<std::vector<int>> tokens_;
  Status done_;
  std::vector<std::shared_ptr<const GpuReference>> found_;
  std::thread thread_;
};

// Every sequence against its own oracle; and what the worker saw of it alone.
OutputsJudged compare_batch(const std::vector<std::shared_ptr<const GpuReference>>& all, std::size_t vocab, std::span<const float> outputs,
                            const Json& reply) {
  OutputsJudged answer;
  const auto next = reply.at("next_tokens").get<std::vector<int>>();
  const bool repeatable = reply.value("repeatable", false);
  std::size_t at = 0;
  for (std::size_t s = 0; s < all.size(); ++s) {
    const std::size_t count = all[s]->positions().size();
    if (next.size() < at + count || outputs.size() < (at + count) * vocab) return {{}, "the worker returned fewer logits than asked for"};
    const auto outcome = all[s]->compare(outputs.subspan(at * vocab, count * vocab), std::span(next).subspan(at, count), repeatable);
    if (s == 0) answer.correctness = outcome.correctness;
    if (s > 0) merge(answer.correctness, outcome.correctness);
    if (answer.failure.empty() && !outcome.correct) answer.failure = "sequence " + std::to_string(s) + ": " + outcome.failure;
    at += count;
  }
  if (answer.failure.empty() && (reply.value("alone", 0) == 0 || !reply.value("alone_equal", false)))
    answer.failure = "a sequence of the batch has not the bits that it has alone";
  return answer;
}

}  // namespace

Result<GpuReferences::Sequences> references_of(GpuReferences& all, const MegakernelWorkload& workload, const Progress& progress) {
  const auto make = [&]() -> Result<GpuReferences::Sequences> {
    if (progress.report) progress.report(0.05, "running the oracle");
    AMK_TRY(weights, load_weights(workload.model()));
    GpuReferences::Sequences made;
    for (int seq = 0; seq < workload.batch(); ++seq) {
      const std::uint64_t seed = fresh_seed();  // no candidate can know the tokens
      const auto plan = GpuReference::plan(workload.model().spec, workload.lowering_target().max_seq, seed, workload.batch());
      AMK_TRY(one, GpuOracle::create(weights, plan, seed, progress.stop));
      made.push_back(std::move(one));
    }
    return made;
  };
  const std::string key = workload.content();
  all.whole.keep_only(workload.id() + "\n", key);
  return all.whole.get(key, make, progress.stop);
}

Result<std::shared_ptr<const InstructionReference>> reference_of(GpuReferences& all, const InstructionWorkload& workload, const Progress& progress) {
  const auto make = [&]() -> Result<std::shared_ptr<const InstructionReference>> {
    if (progress.report) progress.report(0.05, "running the instruction's reference");
    const ModelSpec& spec = workload.model().model().spec;
    const int max_seq = workload.model().lowering_target().max_seq;
    AMK_TRY(weights, load_weights(workload.model().model()));
    return InstructionReference::create(weights, workload.op(), max_seq, gpu_format(spec.dtype),
                                        instruction_draws(spec, workload.op(), max_seq, fresh_seed()), progress.stop);
  };
  const std::string key = workload.id() + "\n" + workload.model().content();
  all.instructions.keep_only(workload.id() + "\n", key);
  return all.instructions.get(key, make, progress.stop);
}

// The last `tokens` of a sequence, as far as it goes.
void time_last(GpuQuestion& asks, const MegakernelWorkload& workload, int total, int tokens) {
  const ModelSpec& spec = workload.model().spec;
  asks.tokens = std::min(tokens, total);
  asks.first = total - asks.tokens;
  asks.floor = decode_roofline(spec, workload.target(), asks.first, dtype_bytes(gpu_format(spec.dtype).kv), workload.batch());
}

// A whole step: the oracle's logits behind its own tokens, of which the last compared ones are new to this judgement.
Result<GpuQuestion> gpu_question(GpuReferences& references, const MegakernelWorkload& workload, int steps, std::int64_t l2_bytes,
                                 const Progress& progress) {
  AMK_TRY(all, references_of(references, workload, progress));
  const ModelSpec& spec = workload.model().spec;
  GpuQuestion out;
  std::vector<std::vector<int>> tokens;
  for (const auto& oracle : all) tokens.push_back(oracle->redraw(fresh_seed()));
  const int total = static_cast<int>(tokens[0].size());
  if (all.size() == 1) {
    out.check = {{"tokens", tokens[0]}, {"positions", all[0]->reference()->positions()}};
  } else {
    Json sequences = Json::array();
    for (std::size_t s = 0; s < all.size(); ++s)
      sequences.push_back({{"tokens", tokens[s]}, {"positions", all[s]->reference()->positions()}, {"delay", kDelay * static_cast<int>(s)}});
    out.check = {{"sequences", std::move(sequences)}};
  }
  // The oracle runs while the worker does.
  out.compare = [answers = std::make_shared<Answers>(std::move(all), std::move(tokens)), vocab = static_cast<std::size_t>(spec.vocab)](
                    std::span<const float> outputs, const Json& reply) -> Result<OutputsJudged> {
    AMK_TRY(expected, answers->wait());
    if (expected.size() > 1) return compare_batch(expected, vocab, outputs, reply);
    const auto outcome = expected[0]->compare(outputs, reply.at("next_tokens").get<std::vector<int>>(), reply.value("repeatable", false));
    return OutputsJudged{outcome.correctness, outcome.failure};
  };
  out.flush = spec.decode_weight_bytes() < kColdFactor * l2_bytes;
  time_last(out, workload, total, std::max(steps, out.flush ? 1 : kTimedTokens));
  return out;
}

// One kind alone: fp32 on the reference VM, on inputs that no candidate can know.
Result<GpuQuestion> gpu_question(GpuReferences& references, const InstructionWorkload& workload, std::int64_t l2_bytes, const Progress& progress) {
  AMK_TRY(held, reference_of(references, workload, progress));
  GpuQuestion out;
  Json draws = Json::array();
  for (const InstructionDraw& d : held->draws()) draws.push_back({{"position", d.position}, {"seed", d.seed}});
  out.check = {{"instruction", workload.op()}, {"draws", std::move(draws)}};
  out.compare = [expected = held](std::span<const float> outputs, const Json& reply) -> Result<OutputsJudged> {
    const auto outcome = expected->compare(outputs, reply.value("repeatable", false));
    if (outcome.failure.empty() && !reply.value("partials_agree", false))
      return OutputsJudged{outcome.correctness, "the argmax partials are not those of the logits"};
    return OutputsJudged{outcome.correctness, outcome.failure};
  };
  out.first = held->draws().back().position;
  out.flush = workload.weight_bytes() < kColdFactor * l2_bytes;
  out.floor = workload.floor(out.first);
  return out;
}

}  // namespace amk
